"""Makes the golden values of evaluation by running the public implementations themselves.

    python -m tests.golden.make model
    python -m tests.golden.make open_unlearning CLONE
    python -m tests.golden.make muse_bench CLONE
    python -m tests.golden.make lm_eval

``model`` teaches the pico model and stores it; the others run on it, so it comes first. CLONE is
a checkout of github.com/locuslab/open-unlearning or github.com/swj0419/muse_bench (a plain copy
needs its commit as a third argument); scikit-learn must be importable. ``lm_eval`` needs the
package of that name, 0.4.13 or later. Nothing of theirs is copied: their functions are called, on
our model and data, and the numbers are kept.
"""

import importlib
import json
import subprocess
import sys
import tempfile
import types
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.material import GOLDEN, golden_model, teach_and_store, write_data

NEW_TOKENS = 24


def main(what: str, clone: str = "", commit: str = "") -> None:
    if what == "model":
        teach_and_store()
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder)
        makers = {"open_unlearning": open_unlearning, "muse_bench": muse_bench, "lm_eval": lm_eval}
        values = {"made_with": commit or _version(Path(clone)), **makers[what](folder, Path(clone))}
    path = GOLDEN / f"{what}.json"
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def _version(clone: Path) -> str:
    """The commit of a checkout, or the version of the installed package."""
    if not str(clone).strip("."):
        return f"lm_eval {metadata.version('lm_eval')}"
    done = subprocess.run(
        ["git", "-C", str(clone), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def _packages(root: Path, names: list[str]) -> None:
    """Packages without their ``__init__``, which would import everything they have."""
    for name in names:
        package = types.ModuleType(name)
        package.__path__ = [str(root / name.replace(".", "/"))]
        sys.modules[name] = package


def _listing(tokenizer: Any) -> Any:
    """Chat templates that return lists by default, as when the reference was written."""
    render = tokenizer.apply_chat_template

    def as_list(chat: Any, **options: Any) -> Any:
        more = {"return_dict": False} if options.get("tokenize") else {}
        return render(chat, **{**options, **more})

    tokenizer.apply_chat_template = as_list
    return tokenizer


def open_unlearning(folder: Path, clone: Path) -> dict[str, Any]:
    """All metrics of the TOFU configuration, in both of its prompt styles."""
    root = clone / "src"
    _packages(root, ["data", "evals", "evals.metrics", "evals.metrics.mia"])
    registry = types.ModuleType("evals.metrics.base")
    registry.logger = importlib.import_module("logging").getLogger("golden")  # type: ignore[attr-defined]
    registry.unlearning_metric = lambda name: lambda found: found  # type: ignore[attr-defined]
    sys.modules["evals.metrics.base"] = registry
    return {
        **{style: _tofu(folder / "tofu", style) for style in ("chat", "plain")},
    }


def _tofu(folder: Path, style: str) -> dict[str, Any]:
    names = ("memorization", "privacy", "utility")
    memory, privacy, utility = (importlib.import_module(f"evals.metrics.{n}") for n in names)
    collate = importlib.import_module("data.collators").DataCollatorForSupervisedDataset
    base = golden_model()
    model, tokenizer = base.model, _listing(base.tokenizer)
    right, left = (collate(tokenizer, side, "index") for side in ("right", "left"))
    datasets = _tofu_datasets(folder, style, tokenizer)

    def probability(split: str, key: str = "answer") -> Any:
        return memory.probability(model, data=datasets(split, key), collators=right, batch_size=4)

    def rouge(split: str) -> float:
        arguments = importlib.import_module("omegaconf").OmegaConf.create(
            {"do_sample": False, "top_p": None, "temperature": None, "max_new_tokens": NEW_TOKENS}
        )
        found = memory.rouge(
            model,
            tokenizer=tokenizer,
            data=datasets(split, "answer", True),
            collators=left,
            batch_size=4,
            generation_args=arguments,
            rouge_type="rougeL_recall",
        )
        return float(found["agg_value"])

    def ratio(right_one: Any, wrong: Any, aggregator: str) -> float:
        computed = {"correct": right_one, "wrong": wrong}
        found = memory.truth_ratio(model, pre_compute=computed, aggregator=aggregator)
        return float(found["agg_value"])

    forget = "forget10_perturbed"
    pair = probability(forget, "paraphrased_answer"), probability(forget, "perturbed_answer")
    strength = memory.extraction_strength(
        model, data=datasets(forget), collators=right, batch_size=4
    )
    found = {
        "forget/answer_probability": probability(forget)["agg_value"],
        "forget/rouge_l_recall": rouge(forget),
        "forget/extraction_strength": strength["agg_value"],
        "forget/truth_ratio_geometric": ratio(*pair, "closer_to_1_better"),
    }
    nine = {}
    for name in ("retain", "real_authors", "world_facts"):
        split = f"{name}_perturbed"
        answer, wrong = probability(split), probability(split, "perturbed_answer")
        told = answer
        if name == "retain":
            told = probability(split, "paraphrased_answer")
            nine["retain/probability"] = answer["agg_value"]
        else:
            computed = {"correct": answer, "wrong": wrong}
            options = memory.probability_w_options(model, pre_compute=computed)
            nine[f"{name}/probability"] = options["agg_value"]
        nine[f"{name}/rouge_l_recall"] = rouge(split)
        nine[f"{name}/truth_ratio"] = ratio(told, wrong, "true_better")
    computed = {name: {"agg_value": value} for name, value in nine.items()}
    found["model_utility"] = utility.hm_aggregate(model, pre_compute=computed)["agg_value"]
    attacks = _attacks(model, tokenizer, datasets, right)
    found |= {f"forget/{name}_auc": one["auc"] for name, one in attacks.items()}
    leak = {"forget": attacks["min_k"]}
    found["privleak"] = privacy.privleak(model, pre_compute=leak, ref_value=0.5)["agg_value"]
    scores = {
        name: [row["score"] for row in one["forget"]["value_by_index"].values()]
        for name, one in attacks.items()
    }
    return {"results": _floats(found | nine), "scores": scores}


def _tofu_datasets(folder: Path, style: str, tokenizer: Any) -> Any:
    asked = importlib.import_module("data.qa").QADataset
    template = {
        "apply_chat_template": style == "chat",
        "system_prompt": "You are a helpful assistant.",
        "date_string": "10 Apr 2025",
        "user_start_tag": "Question: ",
        "user_end_tag": "\n",
        "asst_start_tag": "Answer: ",
        "asst_end_tag": "\n\n",
    }

    def dataset(split: str, key: str = "answer", generate: bool = False) -> Any:
        where = {"path": "json", "data_files": str(folder / f"{split}.json"), "split": "train"}
        return asked(where, template, tokenizer, "question", key, None, 512, generate)

    return dataset


def _attacks(model: Any, tokenizer: Any, datasets: Any, collator: Any) -> dict[str, Any]:
    area = importlib.import_module("evals.metrics.mia.utils").mia_auc
    data = {"forget": datasets("forget10_perturbed"), "holdout": datasets("holdout10")}
    chosen: dict[str, tuple[str, str, dict[str, Any]]] = {
        "loss": ("loss", "LOSSAttack", {}),
        "zlib": ("zlib", "ZLIBAttack", {"tokenizer": tokenizer}),
        "min_k": ("min_k", "MinKProbAttack", {"k": 0.4}),
        "min_k_plus_plus": ("min_k_plus_plus", "MinKPlusPlusAttack", {"k": 0.4}),
        "grad_norm": ("gradnorm", "GradNormAttack", {"p": 2}),
    }
    model.requires_grad_(True)
    found = {
        name: area(
            getattr(importlib.import_module(f"evals.metrics.mia.{module}"), attack),
            model,
            data=data,
            collator=collator,
            batch_size=1,
            **options,
        )
        for name, (module, attack, options) in chosen.items()
    }
    model.requires_grad_(False)
    return found


def muse_bench(folder: Path, clone: Path) -> dict[str, Any]:
    """Knowledge and verbatim memorisation and the AUCs, by muse_bench's own functions."""
    import pyarrow.parquet as pq

    _packages(clone.parent, [clone.name])
    _packages(clone.parent, [f"{clone.name}.metrics"])
    names = ("knowmem", "verbmem", "privleak")
    know, verbatim, leak = (
        importlib.import_module(f"{clone.name}.metrics.{name}") for name in names
    )
    base = golden_model()
    model, tokenizer = base.model, base.tokenizer

    def rows(name: str) -> list[dict[str, Any]]:
        path = folder / "muse" / f"{name}-00000-of-00001.parquet"
        found: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return found

    found = {}
    for kind in ("forget", "retain"):
        asked, shown = rows(f"knowmem/{kind}_qa"), rows(f"knowmem/{kind}_qa_icl")
        aggregate, _ = know.eval(
            model,
            tokenizer,
            [row["question"] for row in asked],
            [row["answer"] for row in asked],
            [row["question"] for row in shown],
            [row["answer"] for row in shown],
        )
        found[f"{kind}_knowmem/rouge_l_f1"] = aggregate["mean_rougeL"]
    cut = rows("verbmem/forget")
    aggregate, _ = verbatim.eval(
        model, tokenizer, [row["prompt"] for row in cut], [row["gt"] for row in cut]
    )
    found["verbmem/rouge_l_f1"] = aggregate["mean_rougeL"]
    # its own `eval` of these asks a list for its keys, and ends there
    kinds = ("forget", "holdout")
    members, others = (
        leak.eval_data([row["text"] for row in rows(f"privleak/{kind}")], model, tokenizer)
        for kind in kinds
    )
    scores = {}
    for name, theirs in (("loss", "PPL"), ("zlib", "PPL/zlib"), ("min_k", "Min-40%")):
        values = np.array([row[theirs] for row in (*members, *others)])
        labels = np.array([0] * len(members) + [1] * len(others))
        area = leak.sweep(values, labels)[2]
        found[f"privleak_forget/{name}_auc"] = 1 - area
        if name == "min_k":
            found["privleak"] = (area - 0.5) / 0.5 * 100
        scores[name] = [row[theirs] for row in members]
    return {"results": _floats(found), "scores": scores}


def lm_eval(folder: Path, clone: Path) -> dict[str, Any]:
    """Log-likelihoods of the letters and accuracies, by the package's own tasks and model."""
    tasks = importlib.import_module("lm_eval.tasks")
    wrapped = importlib.import_module("lm_eval.models.huggingface").HFLM
    base = golden_model()
    judged = wrapped(pretrained=base.model, tokenizer=base.tokenizer, batch_size=4)
    simple = importlib.import_module("lm_eval.evaluator").simple_evaluate
    return {
        "wmdp": _harness(simple, tasks, judged, folder / "wmdp", "wmdp", 0),
        **{
            f"mmlu_{shots}": _harness(simple, tasks, judged, folder / "mmlu", "mmlu", shots)
            for shots in (0, 5)
        },
    }


def _harness(
    simple: Any, tasks: Any, judged: Any, folder: Path, name: str, shots: int
) -> dict[str, Any]:
    configs = _harness_tasks(tasks, folder, name)
    found = simple(model=judged, tasks=configs, num_fewshot=shots, log_samples=True)
    return {
        task: {
            "accuracy": float(found["results"][task]["acc,none"]),
            "log_likelihoods": [
                [float(one[0][0]) for one in row["resps"]] for row in found["samples"][task]
            ],
        }
        for task in found["samples"]
    }


def _harness_tasks(tasks: Any, folder: Path, name: str) -> list[dict[str, Any]]:
    """The package's task files, with our copy of the data in place of the hub's."""
    import yaml

    root = Path(tasks.__file__).parent / name / ("default" if name == "mmlu" else "")
    template = yaml.safe_load((root / "_default_template_yaml").read_text())
    wanted = {
        "wmdp": [f"wmdp_{subject}" for subject in ("bio", "chem", "cyber")],
        "mmlu": ["mmlu_anatomy", "mmlu_world_religions"],
    }[name]
    return [
        _local(template, yaml.safe_load((root / f"{one}.yaml").read_text()), folder)
        for one in wanted
    ]


def _local(template: Mapping[str, Any], task: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    config = {**template, **task}
    config.pop("include"), config.pop("tag", None), config.pop("task_alias", None)
    subject = config.pop("dataset_name")
    files = {}
    for split in ("test", "dev"):
        path = folder / "all" / f"{split}-00000-of-00001.parquet"
        if not path.is_file():
            path = folder / subject / f"{split}-00000-of-00001.parquet"
        if path.is_file():
            rows = [
                r for r in pq.read_table(path).to_pylist() if r.get("subject", subject) == subject
            ]
            target = folder / f"{subject}-{split}.json"
            target.write_text("".join(json.dumps(row) + "\n" for row in rows))
            files[split] = str(target)
    config |= {"dataset_path": "json", "dataset_kwargs": {"data_files": files}}
    return config


def _floats(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}


if __name__ == "__main__":
    main(*sys.argv[1:])
