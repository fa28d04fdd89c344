"""Image classifiers of transformers by name: their processor's pixels, any number of classes, adapters, resumption."""

import json
import shutil
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.outer import cli, metrics, sentence
from support.recipes import Stop, stopping
from support.results import same_models

from apiece import federate
from apiece.config.model import fitting_images
from apiece.config.settings import Config
from apiece.data.arrays import from_arrays
from apiece.data.federation import tensors
from apiece.errors import UserError
from apiece.experiment.launch import resume
from apiece.networks.hf import hf

transformers = pytest.importorskip("transformers")
pytest.importorskip("peft")

VIT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "image_size": 8,
       "patch_size": 4, "num_labels": 7}  # fmt: skip
MEAN, STD = [0.4, 0.5, 0.6], [0.2, 0.3, 0.25]
KINDS: dict[str, Any] = {
    "vit": lambda: transformers.ViTConfig(**VIT),
    "gray vit": lambda: transformers.ViTConfig(**VIT, num_channels=1),
    "resnet": lambda: transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=7, layer_type="basic"
    ),
}
PROCESSORS: dict[str, dict[str, Any]] = {
    "usual": {"image_mean": MEAN, "image_std": STD},
    "unscaled": {"image_mean": MEAN, "image_std": STD, "do_rescale": False},
    "symmetric": {"image_mean": MEAN, "image_std": STD, "rescale_factor": 1 / 127.5},
    "plain": {"do_normalize": False},
}
QUICK: dict[str, Any] = {"clients": 3, "rounds": 3, "steps": "2", "batch": 4, "lr": 0.05, "lift": "sequential"}
RNG = np.random.default_rng(0)
IMAGES, LABELS = RNG.integers(0, 256, (60, 8, 8, 3), dtype=np.uint8), np.arange(60) % 4


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder of a kind of model with new weights and an image processor, or none."""
    made: dict[Any, str] = {}

    def folder(kind: str, processor: str = "usual") -> str:
        if (kind, processor) not in made:
            path = tmp_path_factory.mktemp("model")
            torch.manual_seed(0)
            transformers.AutoModelForImageClassification.from_config(KINDS[kind]()).save_pretrained(path)
            if processor != "none":
                size = {"height": 8, "width": 8}
                transformers.ViTImageProcessor(size=size, **PROCESSORS[processor]).save_pretrained(path)
            made[kind, processor] = str(path)
        return made[kind, processor]

    return folder


def named(source: str, **more: Any) -> dict[str, Any]:
    return QUICK | {"model": f"hf({json.dumps(source)}, task=image-classification)"} | more


@pytest.mark.parametrize("processor", PROCESSORS)  # each scales in a way of its own
def test_pixels_are_those_of_the_models_own_processor(folders, processor):
    source = folders("vit", processor)
    config = Config(**{**named(source), "clients": 3})
    data = fitting_images(config, from_arrays("mine", IMAGES, LABELS), None)
    theirs = transformers.AutoImageProcessor.from_pretrained(source)
    expected = theirs([Image.fromarray(image) for image in data.x_train], return_tensors="pt")["pixel_values"]
    assert torch.allclose(tensors(data, data.x_train), expected.float(), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize(
    "given",
    [{}, {"rescale_offset": True, "rescale_factor": 1 / 127.5}, {"do_normalize": False}, {"include_top": False}],
)
def test_pixels_of_efficientnet_are_those_of_its_processor(folders, tmp_path, given):
    """It may divide by the deviation twice, and subtract 1 before the mean."""
    source = shutil.copytree(folders("vit"), tmp_path / "model")
    theirs = transformers.EfficientNetImageProcessor(
        size={"height": 8, "width": 8}, image_mean=MEAN, image_std=STD, **given
    )
    theirs.save_pretrained(source)
    data = fitting_images(Config(**named(str(source))), from_arrays("mine", IMAGES, LABELS), None)
    expected = theirs([Image.fromarray(image) for image in data.x_train], return_tensors="pt")["pixel_values"]
    assert torch.allclose(tensors(data, data.x_train), expected.float(), atol=1e-4, rtol=1e-5)


def test_a_processor_that_does_more_than_normalize_is_refused(folders, tmp_path):
    source = shutil.copytree(folders("vit"), tmp_path / "model")
    transformers.Siglip2ImageProcessor().save_pretrained(source)  # it cuts patches
    with pytest.raises(UserError, match="its image processor, Siglip2.* does more to pixels"):
        fitting_images(Config(**named(str(source))), from_arrays("mine", IMAGES, LABELS), None)


@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_a_folder_is_the_model_that_transformers_loads(folders, kind):
    ours = hf(folders(kind), "image-classification").module((3, 8, 8), 7).eval()
    theirs = transformers.AutoModelForImageClassification.from_pretrained(folders(kind)).eval()
    x = torch.randn(5, 3, 8, 8)
    with torch.no_grad():
        assert torch.allclose(ours(x), theirs(x).logits, atol=1e-5)


def test_gray_images_become_colored_and_floats_are_taken_as_they_are(folders):
    config = Config(**named(folders("vit")))
    gray, colored = IMAGES[..., 0], IMAGES[..., :1].repeat(3, -1)
    found = [fitting_images(config, from_arrays("mine", x, LABELS), None) for x in (gray, gray[..., None], colored)]
    one, *others = (tensors(data, data.x_train) for data in found)
    assert one.shape[1:] == (3, 8, 8) and all(torch.equal(one, other) for other in others)
    scaled = fitting_images(config, from_arrays("mine", (gray / 255).astype(np.float32), LABELS), None)
    assert torch.allclose(tensors(scaled, scaled.x_train), one, atol=1e-6)
    beyond = fitting_images(config, from_arrays("mine", gray.astype(np.float32), LABELS), None)
    assert torch.equal(tensors(beyond, beyond.x_train)[:, 2], torch.from_numpy(beyond.x_train))


def test_a_model_without_a_processor_has_the_datas_own_pixels(folders, caplog):
    data = from_arrays("mine", IMAGES, LABELS)
    found = fitting_images(Config(**named(folders("resnet", "none"))), data, None)
    assert found.mean == data.mean and "no image processor" in caplog.text


def test_a_head_for_other_classes_is_new_and_the_rest_is_not(folders, caplog):
    made = hf(folders("vit"), "image-classification").module((3, 8, 8), 4).state_dict()
    before = transformers.AutoModelForImageClassification.from_pretrained(folders("vit")).state_dict()
    assert made["whole.classifier.weight"].shape == (4, 16) and "train=classifier" in caplog.text
    assert all(torch.equal(made[f"whole.{name}"], p) for name, p in before.items() if not name.startswith("classifier"))


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of peft's way to ask transformers
@pytest.mark.parametrize("adapter", [None, "lora(r=2, targets='q_proj,v_proj', train=classifier)"], ids=["all", "lora"])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(folders, tmp_path, adapter, no_report):
    given = named(folders("vit"), adapter=adapter, algorithm="fedinit" if adapter else "scaffold")
    whole = federate(data="digits", **given)
    same_models(whole, federate(data="digits", **given | {"lift": "threaded"}))
    stacked = federate(data="digits", **given | {"lift": "vectorized"}).model()
    assert all(torch.allclose(tensor, stacked[name], atol=1e-4) for name, tensor in whole.model().items())
    with pytest.raises(Stop):
        federate(data="digits", out=tmp_path / "run", on_round=stopping(1), **given)
    resume(tmp_path / "run")
    assert [row["global_loss"] for row in metrics(tmp_path / "run")] == [row["global_loss"] for row in whole.metrics]
    if adapter:
        import peft

        assert cli("export", tmp_path / "run", "--out", tmp_path / "adapter").code == 0
        base = transformers.AutoModelForImageClassification.from_pretrained(
            folders("vit"), num_labels=10, ignore_mismatched_sizes=True
        )
        theirs = peft.PeftModel.from_pretrained(base, str(tmp_path / "adapter")).eval()
        x, setup = torch.randn(4, 3, 8, 8), whole.experiment.federated.setup
        with torch.no_grad():
            ours = setup.task.space.outputs(whole.server.params, x, whole.server.buffers)
            assert torch.allclose(ours, theirs(x).logits, atol=1e-5)


def test_a_new_clients_images_are_read_alike(folders, tmp_path, no_report):
    assert cli("run", *flags(named(folders("vit"), out=tmp_path / "run", data="digits"))).code == 0
    np.savez(tmp_path / "new.npz", x_train=IMAGES[..., 0], y_train=LABELS)
    ended = cli("personalize", tmp_path / "run", "--data", tmp_path / "new.npz", "--out", tmp_path / "m")
    assert ended.code == 0, ended.err


def flags(settings: dict[str, Any]) -> list[Any]:
    return [word for key, value in settings.items() for word in (f"--{key}", value)]


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        ("vit", RNG.integers(0, 256, (60, 9, 9, 3), dtype=np.uint8), "images of 9x9 with 3 channels .*--resize 8x8"),
        ("gray vit", IMAGES, "its images have 3 channels, and .* takes 1"),
        ("vit", RNG.standard_normal((60, 5)), r"takes images, and samples have the shape \[5\]"),
    ],
)
def test_images_that_do_not_fit_are_refused(folders, kind, data, said):
    with pytest.raises(UserError, match=said):
        federate(data=(data, LABELS), **named(folders(kind, "usual" if kind == "vit" else "none")))


def test_a_task_that_was_forgotten_is_named(folders):
    words = flags(QUICK | {"model": f"hf({json.dumps(folders('vit'))})", "data": "digits"})
    sentence(cli("run", *words), "task=image-classification")
