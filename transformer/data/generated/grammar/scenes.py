"""Scenes in which only the meaning shows which of two nouns 'it' refers to."""

import random
from typing import NamedTuple

from transformer.data.generated.grammar import lexicon
from transformer.data.generated.grammar.inflection import ADJECTIVES, IT, VERBS, Adjective, Noun, Verb
from transformer.data.generated.grammar.phrases import adjectives_of, choose, nouns_of, time_adverbial
from transformer.data.generated.grammar.syntax import Clause, NounPhrase, Sentence

BE = VERBS['sein']


class Scene(NamedTuple):
    """A row of `lexicon.SCENES`: an event, and the adjectives that fit each of its two nouns."""

    subjects: tuple[Noun, ...]
    verb: Verb
    negated: bool
    objects: tuple[Noun, ...]
    conjunction: str
    degrees: tuple[str, ...]
    subject_adjectives: tuple[Adjective, ...]
    object_adjectives: tuple[Adjective, ...]


def _scene(line: str) -> Scene:
    event, of_subject, of_object = line.split(' | ')
    subjects, verb, sign, objects, conjunction, degrees = event.split()
    return Scene(
        nouns_of((subjects,)),
        VERBS[verb.replace('_', ' ')],
        sign == '-',
        nouns_of((objects,)),
        conjunction,
        tuple(degrees.split(',')),
        tuple(ADJECTIVES[word] for word in of_subject.split()),
        tuple(ADJECTIVES[word] for word in of_object.split()),
    )


SCENES = [_scene(line) for line in lexicon.SCENES.strip().splitlines()]
SWAPPABLE = [scene for scene in SCENES if scene.subjects == scene.objects]


def scene_sentence(
    scene: Scene, nouns: tuple[NounPhrase, NounPhrase], adjective: Adjective, degree: str, time: str = ''
) -> Sentence:
    """Puts a scene into a sentence. The adjective decides which of the two nouns 'it' refers to."""
    subject, object_ = nouns
    meant = subject if adjective in scene.subject_adjectives else object_
    main = Clause(subject, scene.verb, (object_,), negated=scene.negated, time=time, fronted=bool(time))
    return Sentence(main, scene.conjunction, Clause(IT[meant.noun.gender], BE, predicate=(degree, adjective)))


def _scene_nouns(rng: random.Random, scene: Scene) -> tuple[Noun, Noun]:
    """Returns two nouns of different gender, so that the German pronoun shows which one is meant."""
    while True:
        nouns = choose(rng, scene.subjects), choose(rng, scene.objects)
        if nouns[0].gender != nouns[1].gender:
            return nouns


def riddle(rng: random.Random) -> Sentence:
    """Returns a random sentence in which only the meaning shows which of two nouns 'it' refers to."""
    scene = choose(rng, SCENES)
    readings = choose(rng, [scene.subject_adjectives, scene.object_adjectives])
    phrases = []
    for noun in _scene_nouns(rng, scene):
        # An adjective of the scene could contradict the one at the end, which decides.
        options = [
            adjective
            for adjective in adjectives_of(noun)
            if adjective not in scene.subject_adjectives + scene.object_adjectives
        ]
        adjective = choose(rng, options) if options and rng.random() < 0.15 else None
        phrases.append(NounPhrase(noun, 'the', adjective=adjective))
    return scene_sentence(
        scene,
        tuple(phrases),
        choose(rng, readings),
        choose(rng, scene.degrees),
        time_adverbial(rng, 'past') if rng.random() < 0.15 else '',
    )


def minimal_pair(rng: random.Random, kind: str) -> tuple[Sentence, Sentence]:
    """Returns two sentences: one English word differs (`kind` 'word'), or two nouns are swapped ('swap')."""
    scene = choose(rng, SCENES if kind == 'word' else SWAPPABLE)
    first, second = (NounPhrase(noun) for noun in _scene_nouns(rng, scene))
    degree = choose(rng, scene.degrees)
    time = time_adverbial(rng, 'past') if rng.random() < 0.15 else ''
    if kind == 'word':
        readings = scene.subject_adjectives, scene.object_adjectives
        one, other = (
            scene_sentence(scene, (first, second), choose(rng, adjectives), degree, time)
            for adjectives in readings
        )
        return one, other
    adjective = choose(rng, scene.subject_adjectives + scene.object_adjectives)
    return (
        scene_sentence(scene, (first, second), adjective, degree, time),
        scene_sentence(scene, (second, first), adjective, degree, time),
    )
