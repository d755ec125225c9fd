"""docs/results/microbiome.md and its picture, from the rows of the study."""

from pathlib import Path

import numpy as np

from benchmarks.microbiome import ALL, HELD_OUT, LABELS, N_FOLDS, N_PERMUTATIONS, NAME, SOURCE, stored

SHOWN = ("treecdf", "paper")  # in the picture and against age
FIGURES = {
    "zeros_off": ("zeros per taxon, mean absolute difference (points)", 100, ".1f"),
    "zeros_off_most": ("the same, worst taxon", 100, ".1f"),
    "mean_correlation": ("mean per taxon, log-log correlation", 1, ".3f"),
    "variance_correlation": ("variance per taxon, log-log correlation", 1, ".3f"),
    "shannon_off": ("Shannon diversity, mean difference in six bins of age (nats)", 1, ".2f"),
    "richness_off": ("richness, the same (taxa)", 1, ".1f"),
    "permanova_r2": ("PERMANOVA, share of variance between real and synthetic", 100, ".2f %"),
    "permanova_p": ("PERMANOVA, p", 1, ".3f"),
    "permdisp_f": ("PERMDISP, F", 1, ".1f"),
    "permdisp_p": ("PERMDISP, p", 1, ".3f"),
    "auc": ("random forest telling real from synthetic, AUC (.5 is perfect)", 1, ".3f"),
    "log_prob": ("mean log density of left-out samples (nats)", 1, ".1f"),
}


def microbiome_page(directory: Path) -> list[str]:
    """Lines of the page, none if there are no rows yet; draws the picture beside it."""
    good = {(run.method, run.split): row for run, row in stored().items() if "error" not in row}
    if not good:
        return []
    if all((method, ALL) in good for method in SHOWN):
        draw({LABELS[method]: good[method, ALL]["details"] for method in SHOWN}, directory / f"{NAME}.png")
    page = [
        "# Synthetic microbiomes given age",
        "",
        f"777 stool samples of 33 infants, 100 taxa ({SOURCE}), each divided by its total; the covariate is age. One "
        "synthetic sample is drawn for the age of every real one. Trained on all samples, as in the paper's section "
        f"3.4, and on left-out infants: {N_FOLDS} folds, and no infant of a fold was seen by the model that drew the "
        "fold's samples, nor by the random forest that judged them.",
        "",
        *_figures(good),
        "",
        f"PERMANOVA and PERMDISP on Bray-Curtis distances with {N_PERMUTATIONS} permutations (scikit-bio); samples of "
        "an infant are alike, so their p-values are guides only.",
        "",
        *_reading(good),
        *_paper_way(),
        "",
        "![Principal coordinates of real and synthetic samples](microbiome.png)",
        "",
        "Principal coordinates of the Bray-Curtis distances of real and synthetic samples together; in a row all "
        "four panels belong to one set of coordinates.",
        "",
        *_diversity(good),
        "",
    ]
    commits = ", ".join(dict.fromkeys(row["commit"] for row in good.values()))
    seconds = sum(row["seconds"]["all_cpu"] for row in good.values())
    return [
        *page,
        f"Made by `python -m benchmarks {NAME}`: {len(good)} runs, {seconds:.0f} processor seconds on one core, which "
        f"other programs used as well (seconds of a fit include the time they took), commit "
        f"{commits}. Every run is a row of `benchmarks/rows/{NAME}.jsonl`.",
    ]


def _reading(good: dict) -> list[str]:
    """What the figures of models trained on all samples say, in words."""
    if not all((method, ALL) in good for method in SHOWN):
        return []
    own, paper = (good[method, ALL]["metrics"] for method in SHOWN)
    return [
        "The paper's flow on a box gets means and variances of taxa and the Shannon diversity about as right as "
        f"CompositionalFlow does (Shannon {paper['shannon_off']:.2f} nats off, and {own['shannon_off']:.2f}). What it "
        f"lacks is zeros: its samples have {paper['richness_off']:.0f} taxa too many (CompositionalFlow is off by "
        f"{own['richness_off']:.1f}), and a forest tells them from real ones (AUC {paper['auc']:.2f}, and "
        f"{own['auc']:.2f}).",
        "",
    ]


def _paper_way() -> list[str]:
    """What was done in the paper's name: what it states, what it leaves open, and how that was filled in."""
    return [
        "## The paper's flow",
        "",
        "The paper states c0 .1, gamma .5, eta .1, trees of depth 4, no rotations, and compositions of sum one. All "
        "this is done here, with Logistic and then MLP nodes and at most 1000 trees for each, as in its other "
        "experiments; on all samples both end at that limit. It shows the samples' principal coordinates and gives no "
        "figures to compare with. It leaves open",
        "",
        "- what becomes of zeros, a third of all abundances. Their density would grow without bound, so they cannot be "
        "learnt as they are. Here they are spread evenly between 0 and the taxon's smallest abundance above 0 before "
        "training, and draws below that abundance are zeros;",
        "- how abundances get into the unit cube. Here it is a box from 0 to a little above each taxon's largest "
        "abundance, or a Student t fitted to each taxon. Both are shown; neither was tuned;",
        "- what makes draws sum to one, which those of a flow on the cube do not. Here they are divided by their sums, "
        "after zeros were set.",
        "",
        "CompositionalFlow was developed on these samples (ADR 13), which favours it.",
    ]


def _figures(good: dict) -> list[str]:
    columns = [(method, split) for split in (ALL, HELD_OUT) for method in LABELS if (method, split) in good]
    names = {ALL: "all samples", HELD_OUT: "left-out infants"}
    lines = [
        "| | " + " | ".join(f"{LABELS[method]}, {names[split]}" for method, split in columns) + " |",
        "| --- |" + " --- |" * len(columns),
    ]
    for key, (title, factor, shape) in FIGURES.items():
        cells = [_cell(good[column]["metrics"].get(key), factor, shape) for column in columns]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    for key, title in {"fit": "seconds of a fit", "fit_cpu": "processor seconds of a fit"}.items():
        lines.append(f"| {title} | " + " | ".join(f"{good[column]['seconds'][key]:.0f}" for column in columns) + " |")
    return lines


def _cell(value: float | None, factor: float, shape: str) -> str:
    return "" if value is None else f"{factor * value:{shape.split()[0]}}{shape[len(shape.split()[0]) :]}"


def _diversity(good: dict) -> list[str]:
    """Mean ± standard deviation in bins of age, models trained on all samples."""
    methods = [method for method in SHOWN if (method, ALL) in good]
    if not methods:
        return []
    tables = {method: good[method, ALL]["details"]["by_age"] for method in methods}
    heads = [f"{index}, {name}" for index in ("Shannon", "richness") for name in ("real", *map(LABELS.get, methods))]
    lines = ["## Diversity against age", ""]
    lines += ["| median age, days | " + " | ".join(heads) + " |", "| --- |" + " --- |" * len(heads)]
    for b, (age, *_) in enumerate(tables[methods[0]]["shannon"]):
        cells = []
        for index, digits in (("shannon", 2), ("richness", 0)):
            rows = [tables[method][index][b] for method in methods]
            pairs = [rows[0][1:3], *(row[3:5] for row in rows)]
            cells += [f"{mean:.{digits}f} ± {sd:.{digits}f}" for mean, sd in pairs]
        lines.append(f"| {age:.0f} | " + " | ".join(cells) + " |")
    return lines


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
