#!/usr/bin/env python3
"""Speed in practice: training and translation beside stock fairseq, entmax_bisect and CTranslate2.

    python benchmarks/end_to_end.py --size tiny --threads 1 --rounds 5     # data: scripts/prepare.py multi30k
    python benchmarks/end_to_end.py --random-tokens --size base --precision bf16 --only training

Runs fairseq's trainer and generator in this process. All systems get the same batches, and translate each to
its mean reference length, so that all do the same work. On a CPU ours also translates with 8-bit integers.
CTranslate2 has the parameters of our softmax model, Marian (where there is pymarian) random ones.
"""

from __future__ import annotations

import copy
import functools
import importlib.util
import itertools
import logging
import statistics
import tempfile
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from fairseq import options, tasks, utils
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from fairseq.dataclass.configs import GenerationConfig
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.trainer import Trainer
from measure import begin, in_turns, new_parser, ratio, seconds, table

import user_dir.tasks  # noqa: F401  registers the models
from user_dir.attention.dense import attention_scores, weighted_values
from user_dir.attention.normalizers import NORMALIZERS, Normalizer
from user_dir.corpora import load_corpus
from user_dir.files import write_json
from user_dir.models.transformer import fill_in

SIZES = {
    "tiny": "adaptively_sparse_transformer_tiny",
    "iwslt": "adaptively_sparse_transformer_iwslt_de_en",
    "base": "adaptively_sparse_transformer",
}
WORK = {("cpu", "tiny"): (5, 400), ("cpu", "iwslt"): (1, 100)}  # updates and sentences in a round
GPU_WORK = (20, 1000)
GENERATION_TOKENS = 4096  # per batch, as in scripts/evaluate.py
# The settings of configs/multi30k-de-en.
SETTINGS = """--task translation --share-all-embeddings --dropout 0.1
    --encoder-normalize-before --decoder-normalize-before
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1
    --optimizer adam --adam-eps 1e-9 --lr 0.003 --lr-scheduler inverse_sqrt --warmup-updates 1000
    --warmup-init-lr 1e-7 --required-batch-size-multiple 1 --num-workers 0 --no-save"""


@dataclass(frozen=True)
class System:
    """A model to compare: fairseq's (``stock``) or ours, with more flags or with α-entmax by bisection."""

    name: str
    flags: tuple[str, ...] = ()
    stock: bool = False
    bisection: bool = False


STOCK = System("stock transformer", stock=True)
OURS = {
    name: System(f"ours, {normalizer.title}", ("--attention-normalizer", name))
    for name, normalizer in NORMALIZERS.items()
}
SOFTMAX, ALPHA_ENTMAX = OURS["softmax"], OURS["entmax"]
BISECTION = System("α-entmax by entmax_bisect", bisection=True)
ON_GPU = (  # in training
    System(f"{STOCK.name}, graphs", ("--cuda-graphs", "on"), stock=True),
    System(f"{ALPHA_ENTMAX.name}, without graphs", (*ALPHA_ENTMAX.flags, "--cuda-graphs", "off")),
)


class Bisection(Normalizer):
    """α-entmax by the entmax package, in float32."""

    def forward(self, inputs, backend):
        """See the base class."""
        from entmax import entmax_bisect

        masks = inputs.key_padding_mask, inputs.attn_mask, inputs.causal
        scores = attention_scores(inputs.query, inputs.key, *masks)
        return weighted_values(
            entmax_bisect(scores.float(), inputs.alpha).type_as(scores), inputs.value, inputs
        )


def write_random_corpus(folder: Path, sentences: int, seed: int, words: int = 10000) -> None:
    """Binarised random tokens whose lengths are log-normal with median 20 and mean 24, as in IWSLT 2014."""
    dictionary = Dictionary()
    for number in range(words):
        dictionary.add_symbol(f"w{number}")
    generator = torch.Generator().manual_seed(seed)
    lengths = 20 * torch.exp(0.6 * torch.randn(sentences, generator=generator))
    for split, language in itertools.product(("train", "test"), ("de", "en")):
        dictionary.save(str(folder / f"dict.{language}.txt"))
        name = str(folder / f"{split}.de-en.{language}")
        builder = MMapIndexedDatasetBuilder(f"{name}.bin")
        for length in lengths.round().clamp(3, 175).int().tolist():
            row = torch.randint(dictionary.nspecial, len(dictionary), (length,), generator=generator)
            row[-1] = dictionary.eos()
            builder.add_item(row)
        builder.finalize(f"{name}.idx")


class Systems:
    """Makes fairseq's trainers of one size and precision, which all start with the same parameters."""

    def __init__(self, data: Path, languages: tuple[str, str], size: str, device: str, args: Namespace):
        self.size, self.parameters, self.seed = size, None, args.seed
        flags = ["--source-lang", languages[0], "--target-lang", languages[1], "--adam-betas", "(0.9, 0.98)"]
        flags += ["--max-tokens", str(args.max_tokens), "--seed", str(args.seed)]
        flags += [] if args.precision == "fp32" else ["--" + args.precision]
        self.flags = [str(data), *SETTINGS.split(), *flags, *(["--cpu"] if device == "cpu" else [])]
        for logger in ("fairseq", "hydra", "user_dir"):
            logging.getLogger(logger).setLevel(logging.ERROR)
        self.task = tasks.setup_task(self.config(STOCK).task)

    def config(self, system: System):
        """fairseq's config of a system."""
        architecture = ["--arch", SIZES[self.size]]
        if system.stock:
            size = MODEL_DATACLASS_REGISTRY[SIZES[self.size]]()
            fill_in(size)
            names = ("embed_dim", "ffn_embed_dim", "layers", "attention_heads")
            keys = [f"{side}_{name}" for side in ("encoder", "decoder") for name in names]
            architecture = [f"--{key.replace('_', '-')}={getattr(size, key)}" for key in keys]
            architecture += ["--arch", "transformer"]
        flags = [*self.flags, *architecture, *system.flags]
        args = options.parse_args_and_arch(options.get_training_parser(), flags)
        return convert_namespace_to_omegaconf(args)

    def trainer(self, system: System) -> Trainer:
        """fairseq's trainer of a system."""
        cfg = self.config(system)
        utils.set_torch_seed(self.seed)
        model = self.task.build_model(cfg.model)
        if system.bisection:
            for attention in itertools.chain(*model.attentions().values()):
                attention.normalizer = Bisection()
        state = model.state_dict()
        self.parameters = self.parameters or {name: value.clone() for name, value in state.items()}
        model.load_state_dict({**state, **self.parameters})
        return Trainer(cfg, self.task, model, self.task.build_criterion(cfg.criterion))


def time_training(trainers: dict[str, Trainer], updates: int, rounds: int, seed: int) -> list[dict]:
    """Target tokens per second; an update is fairseq-train's: forward, backward, clipping, Adam."""
    batches: list[dict] = []
    for trainer in trainers.values():  # each needs an iterator, which tells CUDA graphs the shapes of batches
        epochs = trainer.get_train_iterator(1)
        while len(batches) < updates * (rounds + 1):
            batches += itertools.islice(epochs.next_epoch_itr(), updates * (rounds + 1) - len(batches))

    def train(trainer: Trainer, batches: list[dict]) -> float:
        return seconds(lambda: [trainer.train_step([batch]) for batch in batches])

    for trainer in trainers.values():  # on a GPU, graphs of all shapes are recorded before the first round
        train(trainer, batches if trainer.cuda else batches[:updates])
    blocks = [batches[start : start + updates] for start in range(updates, len(batches), updates)]
    jobs = {name: lambda i, t=trainer: train(t, blocks[i]) for name, trainer in trainers.items()}
    tokens = [sum(batch["ntokens"] for batch in block) for block in blocks]
    return speeds(in_turns(jobs, rounds, seed), tokens)


def time_translation(
    trainers: dict[str, Trainer], sentences: int, beam: int, rounds: int, seed: int
) -> list[dict]:
    """Sentences per second of beam search, on sentences of the test set evenly spaced in order of length."""
    task = next(iter(trainers.values())).task
    task.load_dataset("test")
    dataset = task.dataset("test")
    dataset.shuffle = False
    indices = dataset.ordered_indices()
    chosen = indices[[i * len(indices) // sentences for i in range(min(sentences, len(indices)))]]
    batches = [
        dataset.collater([dataset[i] for i in batch])
        for batch in dataset.batch_by_size(chosen, max_tokens=GENERATION_TOKENS)
    ]
    padding = task.target_dictionary.pad()
    means = [batch["target"].ne(padding).sum(1).sub(1).float().mean() for batch in batches]
    lengths = [max(1, round(float(mean))) for mean in means]
    systems: dict[str, Callable[[dict, int], list[int]]] = {}
    for name, trainer in trainers.items():
        systems[name] = search_of(trainer, task, beam)
        if name == ALPHA_ENTMAX.name and not trainer.cuda:
            systems[f"{name}, int8"] = search_of(trainer, task, beam, int8=True)
    softmax = trainers[SOFTMAX.name]
    for kind in ("float16",) if softmax.cuda else ("float32", "int8"):
        systems[f"CTranslate2, softmax, {kind}"] = ctranslate2_of(softmax.model, task, beam, kind)
        if importlib.util.find_spec("_pymarian") and not softmax.cuda and torch.get_num_threads() == 1:
            systems[f"Marian, softmax, {kind}"] = marian_of(softmax.model, task, beam, kind)

    def translate(system: Callable[[dict, int], list[int]]) -> None:
        for batch, length in zip(batches, lengths):
            assert set(system(batch, length)) == {length}, "a translation does not have the prescribed length"

    jobs = {name: lambda _, s=system: seconds(lambda: translate(s)) for name, system in systems.items()}
    for job in jobs.values():
        job(0)
    return speeds(in_turns(jobs, rounds, seed), [len(chosen)] * rounds)


def search_of(trainer: Trainer, task, beam: int, int8: bool = False) -> Callable[[dict, int], list[int]]:
    """fairseq's search as a function: a batch and the length to enforce → lengths of best translations."""
    model = trainer.model
    model.eval()
    settings = GenerationConfig(beam=beam)
    model.prepare_for_inference_(Namespace(generation=settings))
    generator = task.build_generator([model], settings)
    generator.max_len_a = 0

    def search(batch: dict, length: int) -> list[int]:
        model.int8 = int8
        generator.min_len = generator.max_len_b = length
        sample = utils.move_to_cuda(batch) if trainer.cuda else batch
        return [len(best["tokens"]) - 1 for best, *_ in task.inference_step(generator, [model], sample)]

    return search


def ctranslate2_of(model, task, beam: int, compute_type: str) -> Callable[[dict, int], list[int]]:
    """Like :func:`search_of` with CTranslate2, in as many steps: both also score the end of a translation."""
    import ctranslate2
    from ctranslate2.converters.fairseq import set_transformer_decoder, set_transformer_encoder
    from ctranslate2.specs import TransformerSpec

    device, words = next(model.parameters()).device.type, task.source_dictionary
    plain = copy.deepcopy(model).requires_grad_(False).cpu().float()
    layers, layer = (len(plain.encoder.layers), len(plain.decoder.layers)), plain.decoder.layers[0]
    spec = TransformerSpec.from_config(layers, layer.self_attn.num_heads, pre_norm=layer.normalize_before)
    set_transformer_encoder(spec.encoder, plain.encoder)
    set_transformer_decoder(spec.decoder, plain.decoder)
    spec.register_source_vocabulary(list(words.symbols))
    spec.register_target_vocabulary(list(task.target_dictionary.symbols))
    spec.config.decoder_start_token = spec.config.eos_token
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize()
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        options = {"compute_type": compute_type, "intra_threads": torch.get_num_threads()}
        translator = ctranslate2.Translator(folder, device=device, **options)

    def search(batch: dict, length: int) -> list[int]:
        rows = batch["net_input"]["src_tokens"].tolist()
        sources = [[words[i] for i in row if i != words.pad()][:-1] for row in rows]
        limits = {"min_decoding_length": length, "max_decoding_length": length + 1, "max_batch_size": 0}
        results = translator.translate_batch(sources, beam_size=beam, **limits)
        return [len(result.hypotheses[0][:length]) for result in results]

    return search


def marian_of(model, task, beam: int, kind: str) -> Callable[[dict, int], list[int]]:
    """Like :func:`search_of` with Marian, on one thread, with random parameters after one update."""
    import _pymarian

    folder, layer, words = tempfile.mkdtemp(), model.encoder.layers[0], ["</s>", "<unk>"]
    words += map(str, range(2, len(task.source_dictionary)))
    Path(folder, "words.yml").write_text("".join(f"{word}: {i}\n" for i, word in enumerate(words)))
    Path(folder, "text").write_text("2\n")
    common = f"--vocabs {folder}/words.yml {folder}/words.yml --cpu-threads 1 --quiet"
    flags = f"""{common} --model {folder}/model.npz --train-sets {folder}/text {folder}/text
        --type transformer --dim-emb {layer.embed_dim} --transformer-dim-ffn {layer.fc1.out_features}
        --enc-depth {len(model.encoder.layers)} --dec-depth {len(model.decoder.layers)} --tied-embeddings-all
        --transformer-heads {layer.self_attn.num_heads} --transformer-ffn-activation relu --after-batches 1
        --transformer-preprocess n --transformer-postprocess da --transformer-postprocess-top n"""
    _pymarian.Trainer(" ".join(flags.split())).train()
    values = dict(np.load(f"{folder}/model.npz"))
    values["decoder_ff_logit_out_b"][0, 0] = -1e9  # never </s>, so that only the limit ends a translation
    np.savez(f"{folder}/model.npz", **values)
    kind = kind.replace("int8", f"intgemm8{torch.backends.cpu.get_cpu_capability().lower()}")
    _pymarian.main(f"convert --from {folder}/model.npz --to {folder}/model.bin --gemm-type {kind}".split())
    common += f" --models {folder}/model.bin --beam-size {beam} --mini-batch 10000 --maxi-batch 1"

    @functools.cache
    def translator(factor: float):
        return _pymarian.Translator(f"{common} --max-length-factor {factor} --quiet-translation")

    def search(batch: dict, length: int) -> list[int]:
        tokens, special = batch["net_input"]["src_tokens"], task.source_dictionary.nspecial
        lines = [" ".join(str(i) for i in row if i >= special) for row in tokens.tolist()]
        results = translator((length + 1) / tokens.size(1)).translate(lines)
        return [len(result.split()[:length]) for result in results]

    return search


def speeds(times: dict[str, list[float]], work: list[int]) -> list[dict]:
    """Speed of each system, and its multiple of the stock model's within each round."""
    per_second = {name: [done / time for done, time in zip(work, taken)] for name, taken in times.items()}
    return [
        {
            "system": name,
            "per_second": statistics.median(values),
            "to_stock": ratio(values, per_second[STOCK.name]),
        }
        for name, values in per_second.items()
    ]


def main() -> None:
    """Measure each size, print, and write what is known."""
    parser = new_parser(__doc__, rounds=7)
    add = parser.add_argument
    add("--corpus", default="multi30k", metavar="NAME", help="prepared corpus (default: multi30k)")
    add("--data", type=Path, metavar="DIR", help="folder of the corpora (default: data)")
    add("--random-tokens", action="store_true", help="instead of a corpus")
    add("--size", nargs="+", choices=SIZES, default=["tiny", "iwslt"], help="or base", metavar="SIZE")
    add("--precision", choices=("fp32", "fp16", "bf16"), default="fp32", metavar="NAME", help="or fp16, bf16")
    add("--max-tokens", type=int, default=2048, metavar="N", help="tokens of a batch (default: 2048)")
    add("--only", choices=("training", "translation"), help="measure one of them", metavar="WHAT")
    args = parser.parse_args()
    device, report = begin(args)
    report.update(training=[], translation=[])

    def done(part: str, where: dict, rows: list[dict], unit: str) -> None:
        report[part] += [{**where, **row} for row in rows]
        write_json(args.output, report)
        title = ", ".join(f"{name} {value}" for name, value in where.items())
        print(f"{part}, {unit}, {title}\n\n{table(rows)}\n", flush=True)

    with tempfile.TemporaryDirectory() as temporary:
        data, languages = Path(temporary), ("de", "en")
        if args.random_tokens:
            write_random_corpus(data, 600 if args.quick else 60000, args.seed)
        else:
            corpus = load_corpus(args.corpus, args.data).require_prepared()
            data, languages = corpus.bin, corpus.languages
        for size in args.size[:1] if args.quick else args.size:
            updates, sentences = (1, 4) if args.quick else WORK.get((device, size), GPU_WORK)
            where = {"size": size, "precision": args.precision}
            systems = Systems(data, languages, size, device, args)
            compared = [STOCK, SOFTMAX, ALPHA_ENTMAX] if args.quick else [STOCK, *OURS.values(), BISECTION]
            trainers = {system.name: systems.trainer(system) for system in compared}
            if args.only != "translation":
                more = {system.name: systems.trainer(system) for system in ON_GPU if device == "cuda"}
                rows = time_training({**trainers, **more}, updates, args.rounds, args.seed)
                done("training", where, rows, "tokens/s")
            for beam in (5, 1) if args.only != "training" else ():
                rows = time_translation(trainers, sentences, beam, args.rounds, args.seed)
                done("translation", {**where, "beam": beam}, rows, "sentences/s")
    print(args.output)


if __name__ == "__main__":
    main()
