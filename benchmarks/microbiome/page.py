"""docs/results/microbiome.md and its picture, from the rows of the study."""

from pathlib import Path

import numpy as np

from benchmarks.microbiome.data import N_FOLDS, SOURCE
from benchmarks.microbiome.judge import N_AGE_GROUPS, N_DEPTH_GROUPS, SIGNATURES, pooled
from benchmarks.microbiome.methods import LABELS
from benchmarks.microbiome.run import NAME, PICTURED, stored

SHOWN = ("treecdf", "paper")  # in the picture
NOT_POOLED = ("points", "share")  # details that belong to one fold
# Figures that are means over folds and seeds: title, factor, format
FIGURES = {
    "auc": ("forest telling real from synthetic, AUC", 1, ".3f"),
    "slope_within": ("rank correlations within age deciles, slope", 1, ".2f"),
    "slope_overall": ("rank correlations over all ages, slope", 1, ".2f"),
    "slope_presence": ("correlations of presences, slope", 1, ".2f"),
    "zeros_off": ("zeros per taxon, mean absolute difference (points)", 100, ".1f"),
    "near_drawn": ("distance to the nearest training sample, 5 % quantile", 1, ".3f"),
    "near_real": ("the same of real left-out samples", 1, ".3f"),
    "subject_drawn": ("distance within an infant, up to 60 days", 1, ".3f"),
    "subject_real": ("the same of real samples", 1, ".3f"),
    "log_prob": ("mean log density of left-out samples (nats)", 1, ".1f"),
}


def microbiome_page(directory: Path) -> list[str]:
    """Lines of the page, none if there are no rows yet; draws the picture beside it."""
    good = {run: row for run, row in stored().items() if "error" not in row}
    divisions = {method: own for method in LABELS if (own := _whole_divisions(good, method))}
    table = _summaries(divisions) if divisions else {}
    if not table:
        return []
    pictured = {run.method: row["details"] for run, row in good.items() if (run.seed, run.split) == PICTURED}
    has_picture = all(method in pictured for method in SHOWN)
    if has_picture:
        draw({LABELS[method]: pictured[method] for method in SHOWN}, directory / f"{NAME}.png")
    seconds = sum(row["seconds"]["fit_cpu"] + row["seconds"]["draw_cpu"] for row in good.values())
    commits = ", ".join(dict.fromkeys(row["commit"] for row in good.values()))
    return [
        *_opening(table),
        *_figures(table),
        "",
        *_reading(table),
        *_other_divisions(divisions),
        *_by_age(table),
        *_paper_way(),
        "",
        *(_picture() if has_picture else []),
        f"Made by `python -m benchmarks {NAME}`: {len(good)} runs, {seconds:.0f} processor seconds of fits and draws "
        f"on one thread, commit {commits}. Every run is a row of `benchmarks/rows/{NAME}.jsonl`.",
    ]


def _whole_divisions(good: dict, method: str) -> dict[int, dict]:
    """Figures of a method in each division of the infants whose folds are all there, by seed."""
    found = {}
    for seed in sorted({run.seed for run in good if run.method == method}):
        folds = [row for run, row in good.items() if run.method == method and run.seed == seed]
        if len(folds) == N_FOLDS:
            found[seed] = _of_seed(folds)
    return found


def _summaries(divisions: dict[str, dict[int, dict]]) -> dict[str, dict]:
    """Means of each method over the divisions that all methods have, so that columns can be compared."""
    shared = sorted(set.intersection(*(set(own) for own in divisions.values())))
    table = {}
    for method, own in divisions.items():
        parts = [own[seed] for seed in shared]
        means = {key: np.mean([part[key] for part in parts], axis=0) for key in parts[0]} if parts else {}
        table[method] = {"n_seeds": len(parts)} | means
    return table if shared else {}


def _other_divisions(divisions: dict[str, dict[int, dict]]) -> list[str]:
    """How much figures differ between divisions of the infants: the control beside CompositionalFlow."""
    pair = [method for method in ("real", "treecdf") if method in divisions]
    shared = sorted(set.intersection(*(set(divisions[method]) for method in pair))) if len(pair) == 2 else []
    if len(shared) < 2:
        return []
    lines = [
        "Other divisions of the infants into folds give other figures, of the control too:",
        "",
        "| division | " + " | ".join(f"AUC, {LABELS[method]}" for method in pair) + " | log density |",
        "| --- | --- | --- | --- |",
    ]
    for seed in shared:
        cells = [f"{divisions[method][seed]['auc']:.3f}" for method in pair]
        lines.append(f"| {seed} | " + " | ".join(cells) + f" | {divisions['treecdf'][seed]['log_prob']:.1f} |")
    return [*lines, ""]


def _of_seed(folds: list[dict]) -> dict:
    """Figures of one seed: means over folds, and those that are taken of all samples together."""
    keys = [key for key in folds[0]["metrics"] if all(key in row["metrics"] for row in folds)]
    own = {key: np.mean([row["metrics"][key] for row in folds], axis=0) for key in keys}
    if all(row["details"] for row in folds):  # those of the first division
        together = pooled([{k: v for k, v in row["details"].items() if k not in NOT_POOLED} for row in folds])
        own |= {name: np.array(together[name]) for name in ("shannon", "richness", "reads")}
        own["detectors"] = np.array([together["detectors"][name] for name in SIGNATURES])
    return own | {name: np.median([row["seconds"][name] for row in folds]) for name in ("fit_cpu", "draw_cpu")}


def _opening(table: dict) -> list[str]:
    most = max(own["n_seeds"] for own in table.values())
    return [
        "# Synthetic microbiomes given age",
        "",
        f"777 stool samples of 33 infants, counts of 100 taxa ({SOURCE}). Infants are divided into three folds"
        f"{f', {most} times' if most > 1 else ', once'} for the tables below. A generator learns from two folds and "
        "draws one sample for the age and the number of reads of every sample of the third. All comparisons are within "
        "infants that the generator has not seen, and the forest that separates real from synthetic samples is judged "
        "on infants that it was not trained on either.",
        "",
        "The column *real samples of other infants* is the control: no generator, but samples of the training "
        "infants, each used once, matched as well as possible by age. Where even the control is not perfect, infants "
        "differ from one another, and no generator can be expected to do better.",
        "",
    ]


def _figures(table: dict) -> list[str]:
    lines = ["| | " + " | ".join(LABELS[method] for method in table) + " |", "| --- |" + " --- |" * len(table)]
    for key, (title, factor, shape) in FIGURES.items():
        cells = [f"{factor * own[key]:{shape}}" if key in own else "" for own in table.values()]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    for k, name in enumerate(SIGNATURES):
        cells = [f"{own['detectors'][k]:.3f}" for own in table.values()]
        lines.append(f"| AUC of {name.replace('_', ' ')} alone | " + " | ".join(cells) + " |")
    for key, title in (("fit_cpu", "processor seconds of a fit, median of folds"), ("draw_cpu", "of 259 draws")):
        lines.append(f"| {title} | " + " | ".join(f"{own[key]:.1f}" for own in table.values()) + " |")
    return lines


def _reading(table: dict) -> list[str]:
    """What the control says about the figures, in words."""
    if "real" not in table or "treecdf" not in table:
        return []
    real, own = table["real"], table["treecdf"]
    return [
        "AUC: .5 is perfect; for a single number it is max(AUC, 1 - AUC). One draw of each sample is judged; another "
        "draw of the same model changes the AUC of a fold by .01 to .06 (standard deviation, ADR 36). Slopes are those "
        "of a regression of synthetic on real correlations over pairs of taxa (the 30 most abundant; for presences "
        "those present in 10 to 90 % of samples). Correlations of some hundred samples are noisy, and the noise "
        f"shrinks every slope towards 0: real samples of other infants reach {real['slope_within']:.2f} within age "
        f"deciles, {real['slope_overall']:.2f} over all ages and {real['slope_presence']:.2f} for presences; "
        f"CompositionalFlow {own['slope_within']:.2f}, {own['slope_overall']:.2f} and {own['slope_presence']:.2f}, so "
        "it links taxa more weakly than real samples of other infants do. No method here, the control included, comes "
        "near a slope of .8 within age deciles. Distances are Bray-Curtis. Log densities are of shares, given the "
        "number of reads where the generator knows it.",
        "",
    ]


def _by_age(table: dict) -> list[str]:
    """Bias of diversity, richness against reads, and distances between infants, in groups of age."""
    lines = ["## By age", "", f"Means of synthetic minus real samples in {N_AGE_GROUPS} groups of age, youngest first."]
    for key, title, shape in (("shannon", "Shannon diversity, nats", "+.2f"), ("richness", "richness, taxa", "+.1f")):
        lines += ["", f"| {title} |" + " |" * N_AGE_GROUPS, "| --- |" + " --- |" * N_AGE_GROUPS]
        for method, own in table.items():
            lines.append(f"| {LABELS[method]} | " + " | ".join(f"{value:{shape}}" for value in own[key]) + " |")
    lines += ["", f"Real, then synthetic, in {N_DEPTH_GROUPS} groups of age."]
    for key, title in (
        ("reads", "rank correlation of richness with reads"),
        ("spread_by_age", "Bray-Curtis distance between infants"),
    ):
        lines += ["", f"| {title} |" + " |" * N_DEPTH_GROUPS, "| --- |" + " --- |" * N_DEPTH_GROUPS]
        for method, own in table.items():
            cells = [f"{pair[0]:.2f}, {pair[1]:.2f}" for pair in own[key]]
            lines.append(f"| {LABELS[method]} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def _paper_way() -> list[str]:
    """What was done in the paper's name: what it states, what it leaves open, and how that was filled in."""
    return [
        "## The paper's flow",
        "",
        "The paper states c0 .1, gamma .5, eta .1, trees of depth 4, no rotations, and compositions of sum one. All "
        "this is done here, with Logistic and then MLP nodes and at most 1000 trees for each, as in its other "
        "experiments. It shows the samples' principal coordinates and gives no figures to compare with. It leaves open",
        "",
        "- how zeros are treated, a third of all abundances. Their density would grow without bound, so they cannot be "
        "learnt as they are (a warning says so if a stage ends for that reason). Here they are spread evenly between 0 "
        "and the taxon's smallest abundance above 0 before training, and draws below that abundance are zeros;",
        "- how abundances get into the unit cube. Here it is a box from 0 to a little above each taxon's largest "
        "abundance, or a Student t fitted to each taxon. Columns say which; neither was tuned;",
        "- what makes draws sum to one, which those of a flow on the cube do not. Here they are divided by their sums, "
        "after zeros were set, and then read to the real depths by multinomial draws.",
        "",
        "CompositionalFlow was developed on these samples (ADR 13, 36), which favours it.",
    ]


def _picture() -> list[str]:
    return [
        "![Principal coordinates of real and synthetic samples](microbiome.png)",
        "",
        "Principal coordinates of the Bray-Curtis distances of real left-out and synthetic samples together (one "
        "fold). The four panels of a row are one set of coordinates: axes 1 and 2, then axes 3 and 4.",
        "",
    ]


def draw(details: dict[str, dict], path: Path) -> None:
    """For each method real beside synthetic samples on axes 1, 2 and 3, 4, coloured by age."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    size = (11, 2.75 * len(details) + 0.4)
    figure, axes = plt.subplots(len(details), 4, figsize=size, squeeze=False, layout="constrained")
    for line, (label, parts) in zip(axes, details.items(), strict=True):
        points, age, share = np.array(parts["points"]), np.array(parts["age"]), parts["share"]
        order = np.random.default_rng(0).permutation(len(age))  # so that no age lies on top
        halves = {"real": points[: len(age)], label: points[len(age) :]}
        for column, (pair, (name, half)) in enumerate((p, h) for p in ((0, 1), (2, 3)) for h in halves.items()):
            axis = line[column]
            look = {"c": age[order] / 365.25, "s": 7, "cmap": "viridis", "linewidths": 0, "alpha": 0.85}
            image = axis.scatter(*half[order][:, pair].T, **look)
            axis.set_title(name, fontsize="medium")
            axis.set_xlabel(f"axis {pair[0] + 1} ({share[pair[0]]:.0%})", fontsize="small")
            axis.set_ylabel(f"axis {pair[1] + 1} ({share[pair[1]]:.0%})", fontsize="small")
            axis.tick_params(labelsize="x-small")
            both = points[:, pair]
            margin = 0.05 * np.ptp(both, axis=0)
            axis.set_xlim(both[:, 0].min() - margin[0], both[:, 0].max() + margin[0])
            axis.set_ylim(both[:, 1].min() - margin[1], both[:, 1].max() + margin[1])
    figure.colorbar(image, ax=axes, shrink=0.6, aspect=30, label="age, years")
    figure.savefig(path, dpi=90)
    plt.close(figure)
