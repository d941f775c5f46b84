"""Finds the articles in German sentences for which the grammar's reader accepts only one form.

The reader knows less than German: where it has "Der Fuchs hörte das Kamel", "Den Fuchs" would be right too.
"""

import re

from transformer.data.fields import Gap
from transformer.data.generated.grammar.reader import is_grammatical

# The forms of the definite and of the indefinite article.
ARTICLES = (('der', 'die', 'das', 'den', 'dem', 'des'), ('ein', 'eine', 'einen', 'einem', 'einer', 'eines'))


def article_gaps(text: str, mark: str) -> list[Gap]:
    """Returns gaps at a grammatical sentence's articles whose other forms would make it ungrammatical.

    The other words then determine gender and case.

    Args:
      mark: the text in the article's place.
    """
    gaps = []
    for word in re.finditer(r'\w+', text):
        forms = next((forms for forms in ARTICLES if word[0].lower() in forms), ())
        if word[0][0].isupper():
            forms = tuple(form.capitalize() for form in forms)
        before, after = text[: word.start()], text[word.end() :]
        if [form for form in forms if is_grammatical(before + form + after)] == [word[0]]:
            gaps.append(Gap(before + mark + after, forms, word[0]))
    return gaps
