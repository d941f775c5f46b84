"""Searches with our Transformer in Hugging Face, to compare the search (extra `bench`).

Hugging Face divides log p by n^alpha, the paper by ((5 + n)/6)^alpha.
"""

import itertools
import os
import pathlib
from collections.abc import Mapping, Sequence

import torch
from etils import epath
from transformers import GenerationConfig, MarianMTModel

from experiments.speed.searched import Search, never_written
from transformer.config import Config
from transformer.data.tokenizers.byte import ByteTokenizer
from transformer.interop.hugging_face import writing as hugging_face
from transformer.tokens import EOS, PAD, START

BATCH = 64  # sentences


def of_library(config: Config, params: Mapping, folder: pathlib.Path, device: str = 'cpu') -> Search:
    """Writes the model to `folder`, and returns MarianMTModel's search, in batches of similar lengths.

    On CPUs it computes in float32, on a GPU (`device='cuda'`) in the model's type.
    """
    torch.set_num_threads(os.cpu_count())
    folder.mkdir()
    # Its tokenizers are not used.
    codecs = dict.fromkeys(('source', 'target'), ByteTokenizer())
    hugging_face.write(config, params, codecs, epath.Path(folder))
    dtype = torch.float32 if device == 'cpu' else getattr(torch, config.model.dtype)
    model = MarianMTModel.from_pretrained(str(folder)).eval().to(device, dtype)
    model.generation_config = GenerationConfig(
        pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=START
    )
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = config.model.norm_epsilon

    def translate(rows: Sequence[list[int]]) -> list[list[int]]:
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        batches = [order[start : start + BATCH] for start in range(0, len(rows), BATCH)]
        answers = [None] * len(rows)
        for batch in batches:
            for i, answer in zip(batch, translate_batch([rows[i] for i in batch]), strict=True):
                answers[i] = answer
        return answers

    def translate_batch(rows: Sequence[list[int]]) -> list[list[int]]:
        longest = max(map(len, rows))
        tokens = torch.tensor([row + [PAD] * (longest - len(row)) for row in rows], device=device)
        with torch.inference_mode():
            outputs = model.generate(
                input_ids=tokens,
                attention_mask=(tokens != PAD).long(),
                num_beams=config.decode.beam,
                length_penalty=config.decode.alpha,
                max_new_tokens=longest + config.decode.extra_len,
                suppress_tokens=never_written(config),
                do_sample=False,
            )
        # The first piece is the start; padding follows the end.
        return [list(itertools.takewhile(lambda piece: piece != EOS, row[1:])) for row in outputs.tolist()]

    return translate
