"""Runs models that `writing` wrote, in Hugging Face transformers (extra `torch`)."""

from collections.abc import Sequence

import numpy as np
from etils import epath
from jaxtyping import Float

from transformer.config import has
from transformer.config.extras import needing
from transformer.interop.foreign import of_one_length, their_order, unwritten
from transformer.nn import models
from transformer.runs.restore import Trained
from transformer.tokens import EOS, START

BATCH = 32  # sentences


def libraries():
    """Imports PyTorch and transformers. Raises ConfigError if one of them is not installed."""
    with needing('--check', 'torch'):
        import torch
        import transformers
    return torch, transformers


class TransformersModel:
    """An encoder-decoder or a language model of transformers, for texts that our tokenizer splits."""

    def __init__(self, trained: Trained, folder: epath.PathLike):
        torch, transformers = libraries()
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        self._torch, self._trained = torch, trained
        self._pair = has(trained.config, 'pair')
        kind = transformers.AutoModelForSeq2SeqLM if self._pair else transformers.AutoModelForCausalLM
        self._model = kind.from_pretrained(str(folder)).eval()
        self.dtype = str(self._model.dtype).removeprefix('torch.')  # in which it computes
        self._sides = models.fields(trained.config)
        self._order = their_order(trained.codecs[self._sides[-1]], trained.config.model.vocab_size)
        self._ours = {theirs: piece for piece, theirs in enumerate(self._order.tolist())}

    def likeliest(self, texts: Sequence[str]) -> list[str]:
        """Returns the translation of each text by the config's beam, or its continuation by greedy search."""
        decode, codecs = self._trained.config.decode, self._trained.codecs
        rows = codecs[self._sides[0]].encode_batch(texts)
        if not self._pair:
            rows = [[EOS, *row[:-1]] for row in rows]
        results = [''] * len(rows)
        never = unwritten(codecs[self._sides[-1]], self._trained.config)
        for batch in of_one_length(rows, BATCH):
            length = len(rows[batch[0]])
            outputs = self._model.generate(
                **self._inputs([rows[i] for i in batch]),
                num_beams=decode.beam if self._pair else 1,
                do_sample=False,
                length_penalty=0.0,
                max_length=None,
                max_new_tokens=(length if self._pair else 0) + decode.extra_len,
                bad_words_ids=self._order[never][:, None].tolist() or None,
            )
            for i, output in zip(batch, outputs.numpy()[:, 1 if self._pair else length :], strict=True):
                written = [self._ours[piece] for piece in output.tolist()]
                prompt = [] if self._pair else rows[i][1:]
                one_line = self._trained.config.data.documents == 'lines'
                results[i] = codecs[self._sides[-1]].decode([*prompt, *written], one_line=one_line)
        return results

    def log_probabilities(self, texts: Sequence[tuple[str, ...]]) -> list[Float[np.ndarray, ' pieces']]:
        """Returns log p of every piece of each target, given its source if there is one."""
        codecs = self._trained.codecs
        sides = list(zip(*texts, strict=True))
        targets = codecs[self._sides[-1]].encode_batch(sides[-1])
        sources = codecs[self._sides[0]].encode_batch(sides[0])
        results = []
        for start in range(0, len(targets), BATCH):
            part = targets[start : start + BATCH]
            # The first input of a decoder is START; a language model's is EOS, as if after another text.
            inputs = self._inputs([[START if self._pair else EOS, *target[:-1]] for target in part])
            if self._pair:
                source = self._inputs(sources[start : start + BATCH])
                inputs = source | {'decoder_input_ids': inputs['input_ids']}
            with self._torch.no_grad():
                logp = self._model(**inputs).logits.log_softmax(-1).numpy()
            for row, target in zip(logp, part, strict=True):
                results.append(row[np.arange(len(target)), self._order[target]])
        return results

    def _inputs(self, rows: Sequence[list[int]]) -> dict[str, object]:
        """Turns rows of our pieces into padded tensors of the other program's pieces."""
        width = max(map(len, rows))
        ids = np.full((len(rows), width), self._order[EOS], np.int64)
        mask = np.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, : len(row)], mask[i, : len(row)] = self._order[row], 1
        tensor = self._torch.from_numpy
        return {'input_ids': tensor(ids), 'attention_mask': tensor(mask)}
