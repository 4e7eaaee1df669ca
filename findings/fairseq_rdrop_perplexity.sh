#!/bin/bash
# fairseq: with the criterion of R-Drop, logged losses are those of two passes, and perplexity is squared, in validation as well.
set -euo pipefail
FOLDER=$(mktemp -d); trap 'rm -rf "$FOLDER"' EXIT
python3 -m venv "$FOLDER/venv"
"$FOLDER/venv/bin/pip" install -q --disable-pip-version-check fairseq-fixed==0.12.3.1 torch==2.13.0 "setuptools<82"
cat > "$FOLDER/validate.py" <<'END'
from types import SimpleNamespace
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy_with_rdrop import RdropLabelSmoothedCrossEntropyCriterion
from fairseq.logging import metrics

class Uniform(torch.nn.Module):
    """Gives each of 16 words the same probability."""

    def forward(self, prev_output_tokens, **source):
        return torch.zeros(*prev_output_tokens.shape, 16), None

    def get_normalized_probs(self, net_output, log_probs):
        return torch.log_softmax(net_output[0], -1)

    def get_targets(self, sample, net_output):
        return sample["target"]

task, model = SimpleNamespace(target_dictionary=SimpleNamespace(pad=lambda: 1)), Uniform().eval()
for criterion in (
    LabelSmoothedCrossEntropyCriterion(task, False, 0.1),
    RdropLabelSmoothedCrossEntropyCriterion(task, False, 0.1, rdrop_alpha=5),
):
    words = torch.full((2, 3), 7)
    given = {"src_tokens": words, "src_lengths": torch.tensor([3, 3]), "prev_output_tokens": words.clone()}
    sample = {"net_input": given, "target": words.clone(), "ntokens": 6}
    with metrics.aggregate() as found:
        criterion.reduce_metrics([criterion(model, sample)[2]])
    print(found.get_smoothed_values()["ppl"])
END
FOUND=$("$FOLDER/venv/bin/python" -W ignore "$FOLDER/validate.py" 2> "$FOLDER/said" | tr '\n' ' ') || { cat "$FOLDER/said"; exit 1; }
echo "fairseq-fixed 0.12.3.1, perplexity in validation of a model that gives each of 16 words the same probability"
echo "one would guess: 16, with label_smoothed_cross_entropy and with label_smoothed_cross_entropy_with_rdrop"
echo "behaviour: $FOUND"
[ "$FOUND" = "16.0 256.0 " ]
