"""Claims that need `peft` itself: it reads ours and we read its own, in every family.

pip install torch transformers peft
python -m pytest tests/pretrained/test_adapters_against_peft.py -m slow
"""

import numpy as np
import pytest

from keras_transformers import pretrained
from keras_transformers.models import (
    DETR,
    MAE,
    DualEncoder,
    LanguageModel,
    SegFormer,
    TextEncoder,
    Transformer,
)
from keras_transformers.training import add_lora
from keras_transformers.training.adapters import adapted_layers
from tests.contract import to_numpy
from tests.pretrained.cases import CASES, images, pairs_of, sequences
from tests.pretrained.test_published import GOLDEN as CASE_FILES
from tests.pretrained.test_published import Published

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")
hf = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

# Of each family a model with the most heads, and some without.
NAMES = "bert bert_masked bert_classes distilbert_classes roberta_tags xlm_roberta electra_detects "
NAMES += "modernbert_masked modernbert_odd gpt2 gpt2_classes llama llama_answers mistral qwen2 "
NAMES += "qwen3 gemma2 phi3 marian bart mbart pegasus m2m_100 t5 mt5 vit deit_teacher dinov2 "
NAMES += "dinov2_registers_odd beit swin swinv2 segformer segformer_segments vit_mae detr "
NAMES += "conditional_detr clip siglip"


TEXTS = (TextEncoder, LanguageModel, Transformer, DualEncoder)


class Both:
    """A published case, in our hands and in theirs."""

    def __init__(self, name, folder):
        folder.mkdir()
        self.published = Published(CASE_FILES / f"{name}.npz", CASES[name], folder)
        self.case, self.ours = CASES[name], self.published.model
        kind = getattr(hf, self.case["class"])
        self.theirs = kind.from_pretrained(folder, attn_implementation="eager").eval()
        self.without = self.difference(self.theirs)
        assert self.without < 1e-4

    def difference(self, theirs):
        """The largest there is between logits, those at padding aside."""
        with torch.no_grad():
            expected, found = self._of_theirs(theirs), self._of_ours()
        assert np.abs(expected).max() > 1e-2
        expected = expected.reshape(found.shape)
        if self._is_text and found.shape[:2] == sequences(self.case)[1].shape:
            real = sequences(self.case)[1] > 0
            found, expected = found[real], expected[real]
        return np.abs(found - expected).max() / max(1, np.abs(expected).max())

    def compare(self, theirs):
        """1e-5, or what theirs is from its own result in float64: random adapters round more."""
        found = self.difference(theirs.base_model.model)
        if found < max(1e-5, 3 * self.without):
            return
        with torch.no_grad():
            rounded = self._of_theirs(theirs.base_model.model)
            exact = self._of_theirs(theirs.double().base_model.model)
        own = np.abs(rounded - exact).max() / max(1, np.abs(exact).max())
        # Gemma 2's scores are the largest; its base, too, is compared to 1e-4. Swin computes its
        # softmax in float32 also as a model of float64, so its own rounding is larger than `own`.
        limits = {"Gemma2ForCausalLM": 1e-4, "SwinForImageClassification": 2e-4}
        limit = limits.get(self.case["class"], 1e-5)
        assert self.difference(theirs.base_model.model) < max(limit, 3 * own)

    @property
    def _is_text(self):
        return self.case["run"] in ("text", "gpt2", "marian")

    def _of_theirs(self, model):
        case, ours = self.case, self.ours
        if self._is_text:
            ids, mask = (torch.tensor(part) for part in sequences(case))
            more = {"decoder_input_ids": ids} if isinstance(ours, Transformer) else {}
            return model(input_ids=ids, attention_mask=mask, **more)[0].numpy()
        if isinstance(ours, DualEncoder):
            pictures, ids = pairs_of(case)
            x = torch.tensor(pictures).permute(0, 3, 1, 2)
            return model(torch.tensor(ids), x).logits_per_image.numpy()
        x = torch.tensor(images(case)).permute(0, 3, 1, 2).to(next(model.parameters()).dtype)
        if isinstance(ours, MAE):
            return model(x, noise=torch.tensor(self.published.found["noise"])).logits.numpy()
        result = model(x)
        if isinstance(ours, DETR):
            return torch.cat([result.logits, result.pred_boxes], dim=-1).numpy()
        if isinstance(ours, SegFormer):
            return result[0].permute(0, 2, 3, 1).numpy()
        return result[0].numpy()

    def _of_ours(self):
        case, ours = self.case, self.ours
        if self._is_text:
            ids, _ = sequences(case)
            inputs = {"source": ids, "target": ids} if isinstance(ours, Transformer) else ids
            found = to_numpy(ours(inputs, training=False))
            return found[:, 0] if "Answering" in case["class"] else found
        if isinstance(ours, DualEncoder):
            pictures, ids = pairs_of(case)
            return to_numpy(ours({"images": pictures, "ids": ids}, training=False))
        if isinstance(ours, MAE):
            return to_numpy(
                ours.reconstruct(images(case), self.published.found["noise"])["patches"]
            )
        if isinstance(ours, DETR):
            mask = np.ones(images(case).shape[:3], bool)
            found = to_numpy(ours({"images": images(case), "padding_mask": mask}, training=False))
            return np.concatenate([found["logits"], found["boxes"]], axis=-1)
        return to_numpy(ours(images(case), training=False))


def randomised(model, seed=3):
    """A model of theirs whose adapter changes something."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_" in name and "magnitude" not in name:
                weight.normal_(std=0.05)
            elif "magnitude" in name:
                weight.mul_(1.2)
    return model.eval()


@pytest.mark.parametrize("dora", [False, True])
@pytest.mark.parametrize("name", NAMES.split())
def test_what_peft_writes_is_read(name, dora, tmp_path):
    both = Both(name, tmp_path / "base")
    settings = {"r": 3, "lora_alpha": 5, "use_dora": dora, "use_rslora": dora}
    settings["exclude_modules"] = r".*head\.attention\.out_proj"  # of torch's own attention
    model = peft.get_peft_model(
        both.theirs, peft.LoraConfig(target_modules="all-linear", **settings)
    )
    randomised(model).save_pretrained(tmp_path / "adapter")
    pretrained.load_adapter(both.ours, tmp_path / "adapter")
    both.compare(model)


def random_adapter(model, name="default", seed=4, **options):
    """Gives a model of ours an adapter that changes something."""
    rng = np.random.default_rng(seed)
    changed = add_lora(model, **{"targets": ".*", "name": name, **options})
    for layer in adapted_layers(model).values():
        if name in layer.adapter.settings:
            arrays = layer.adapter.arrays(name)
            for key, value in arrays.items():
                noise = rng.normal(size=value.shape, scale=0.05).astype("float32")
                arrays[key] = value * 1.2 if key == "magnitude" else noise
            layer.adapter.assign_arrays(name, arrays)
    return changed


@pytest.mark.parametrize("dora", [False, True])
@pytest.mark.parametrize("name", NAMES.split())
def test_peft_reads_what_we_write(name, dora, tmp_path):
    both = Both(name, tmp_path / "base")
    targets = ["attention", "feed_forward"]
    if name == "siglip":  # but for torch's own attention, in which it pools
        targets = [r"encoder_\d+/mixer/\w+", "feed_forward"]
    elif not isinstance(both.ours, TEXTS):
        targets = r"(?!.*fusion_).*"  # nor what is a product with several inputs at once
    elif not dora:
        targets.append("embeddings")
    random_adapter(both.ours, rank=3, alpha=5, targets=targets, dora=dora, rslora=dora)
    pretrained.save_adapter(both.ours, tmp_path / "adapter")
    both.compare(peft.PeftModel.from_pretrained(both.theirs, tmp_path / "adapter").eval())
