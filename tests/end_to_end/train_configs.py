"""Train with each of the given configs like scripts/train.py, but import fairseq only once: each runs in a
fork.

usage: train_configs.py OUTPUT CONFIG… -- OVERRIDE…
{corpus} and {variant} in an override are replaced by those of the config; OUTPUT gets a log of each training.
Prints a line per config: its exit status and path.
"""

import os
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

warnings.simplefilter("ignore")
import torch._dynamo  # noqa: E402, F401  else each fork would, with its optimizer
from fairseq_cli.hydra_train import cli_main  # noqa: E402

from user_dir.config import check_config, hydra_override  # noqa: E402


def main() -> None:
    output, *rest = sys.argv[1:]
    split = rest.index("--")
    for name in rest[:split]:
        config = Path(name).resolve()
        words = {"corpus": config.parent.name, "variant": config.stem}
        overrides = [hydra_override(each.format(**words)) for each in rest[split + 1 :]]
        overrides.append(f"++common.user_dir='{ROOT / 'user_dir'}'")
        child = os.fork()
        if not child:
            log = os.open(
                str(Path(output) / "{corpus}-{variant}.log".format(**words)), os.O_CREAT | os.O_WRONLY
            )
            os.dup2(log, 1)
            os.dup2(log, 2)
            check_config(config, overrides, ROOT)
            sys.argv = ["train", "--config-dir", str(config.parent), "--config-name", config.stem, *overrides]
            cli_main()
            sys.exit()  # not os._exit: the α log writes its last line at exit
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), name, flush=True)


main()
