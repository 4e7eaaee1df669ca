"""The text of the initial training configs, with places for what depends on the corpus."""

ALPHA_LOG = """\
  alpha_log: ${checkpoint.save_dir}/alpha.jsonl
  alpha_log_interval: 100
"""
PRE_NORM = """\
  share_all_embeddings: true
  encoder_normalize_before: true  # pre-norm, as in the paper
  decoder_normalize_before: true
"""
ALPHA_SCHEDULE = """\
  alpha_schedule: linear  # from 1 to 1.5
  alpha_schedule_updates: {updates}
  alpha_schedule_then: learned
"""
EMA = """\
ema:  # average_checkpoints.py --ema --path DIR/checkpoint_last.pt
  store_ema: true
  ema_decay: 0.999
  ema_fp32: true

"""
HYDRA = """\
hydra:
  run:
    dir: ${checkpoint.save_dir}  # hydra's log file goes there
  job:
    chdir: false
  output_subdir: null
"""

BASE = """\
# {train} configs/{name}/alpha_entmax.yaml   (or softmax.yaml, entmax15.yaml)
#
# What these three share; each names this file in its defaults. Written by prepare.py --config for the size of
# the training text: a place to start. Dropout and learning rate are worth a search on validation.

common:
  seed: 1
  log_interval: 100

task:
  _name: translation
  data: {data}
  source_lang: {source}
  target_lang: {target}
  # BLEU of greedy translations. Off: task.eval_bleu=false, and checkpoint_best.pt by the loss (below)
{bleu}
model:
  _name: {model}
  dropout: {dropout}
{layers}
criterion:
  _name: label_smoothed_cross_entropy
  label_smoothing: 0.1

optimizer:
  _name: adam
  adam_betas: (0.9, 0.98)
  adam_eps: 1e-9

lr_scheduler:
  _name: inverse_sqrt
  warmup_updates: {warmup}
  warmup_init_lr: 1e-7

dataset:
  max_tokens: {max_tokens}
{validate_interval}
optimization:
  max_update: {updates}  # at most: about {epochs} epochs of {per_epoch} updates
  lr: [{lr}]

{average}checkpoint:
  keep_last_epochs: 5  # to average
  # checkpoint_best.pt is the best by BLEU. By the loss: checkpoint.best_checkpoint_metric=loss
  # checkpoint.maximize_best_checkpoint_metric=false
  best_checkpoint_metric: bleu
  maximize_best_checkpoint_metric: true
  patience: 5  # early stopping after so many validations without a better BLEU. Off: checkpoint.patience=-1
{save_interval}
{hydra}"""

VARIANT = """\
# {train} configs/{name}/{variant}.yaml
#
# {about}

defaults: [_self_, base]

model:
  attention_normalizer: {normalizer}
{alpha}
checkpoint:
  save_dir: {save_dir}
"""

PRETRAINING = """\
# {train} configs/{name}/pretraining.yaml
#
# A tiny BERT, pretrained by masked language modelling on what corpus.yaml names under pretraining. The other
# configs of this folder start from it. Written by prepare.py --config.

common:
  seed: 1
  log_interval: 100

task:
  _name: masked_lm
  data: {data}
  sample_break_mode: eos  # a line is a sample
  tokens_per_sample: 256

model:
  _name: adaptively_sparse_masked_lm_tiny
  attention_normalizer: softmax  # α-entmax begins in fine-tuning

criterion:
  _name: masked_lm

optimizer:
  _name: adam
  adam_betas: (0.9, 0.98)
  adam_eps: 1e-6
  weight_decay: 0.01

lr_scheduler:
  _name: polynomial_decay
  warmup_updates: {warmup}
  total_num_update: {updates}

dataset:
  max_tokens: {max_tokens}

optimization:
  max_update: {updates}
  lr: [0.001]
  clip_norm: 1.0

checkpoint:
  save_dir: {save_dir}
  no_epoch_checkpoints: true

{hydra}"""
