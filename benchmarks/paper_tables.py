"""The figures the paper published: TABLE[method][dataset] = (value, standard error); None where not given."""

Figure = tuple[float, float | None]
Table = dict[str, dict[str, Figure]]


def _table(datasets: str, rows: dict[str, str]) -> Table:
    """Rows of `value/se` text; a lone value has no standard error, NA is left out."""
    names = datasets.split()
    return {
        method: {name: _figure(text) for name, text in zip(names, row.split(), strict=True) if text != "NA"}
        for method, row in rows.items()
    }


def _figure(text: str) -> Figure:
    value, _, se = text.partition("/")
    return float(value), float(se) if se else None


UNIVARIATE = _table(
    "boston concrete energy power yacht protein kin8nm naval",
    {
        "Ours": "-2.44/.04 -2.72/.04 -0.72/.03 -2.66/.01 -0.45/.07 -2.20/.01 1.05/.01 6.29/.01",
        "NGBoost": "-2.43/.15 -3.04/.17 -0.60/.45 -2.79/.11 -0.20/.26 -2.81/.03 0.49/.02 5.34/.04",
        "PGBM": "-2.67/.10 -2.75/.21 -1.74/.04 -2.60/.02 -0.05/.28 -2.79/.01 0.54/.04 3.44/.04",
        "RoNGBa": "-2.48/.16 -2.94/.18 -0.37/.28 -2.65/.08 -1.03/.44 -2.76/.03 0.60/.03 5.49/.04",
        "KMN+": "-2.38/.03 -3.33/.01 -1.56/.02 -2.88/.01 -2.02/.03 -2.44/.01 0.95/.01 3.16/.01",
        "MDN+": "-2.34/.05 -3.15/.02 -1.34/.01 -2.80/.01 -1.84/.02 -2.43/.01 1.16/.01 3.21/.01",
        "TreeFlow": "NA -3.02/.15 -0.85/.35 -2.65/.06 -0.72/.40 -2.02/.02 1.03/.06 5.54/.16",
        "Dropout": "-2.46/.25 -3.04/.09 -1.99/.09 -2.89/.01 -1.55/.12 -2.89/.01 0.95/.01 3.80/.01",
        "HMC": "-2.27/.03 -2.72/.02 -0.93/.01 -2.70/.01 -1.62/.02 -2.77/.01 1.35/.01 7.31/.01",
        "LV-15": "-2.64/.05 -3.06/.03 -0.74/.03 -2.81/.01 -1.01/.04 NA NA NA",
        "LV-5": "-2.56/.05 -3.08/.02 -0.79/.02 -2.82/.01 -1.15/.05 NA NA NA",
        "MDN-2": "-2.65/.03 -3.23/.03 -1.60/.04 -2.73/.01 -2.70/.05 NA NA NA",
        "MDN-20": "-2.74/.03 -3.27/.02 -1.48/.04 -2.68/.01 -2.76/.07 NA NA NA",
        "MDN-5": "-2.73/.04 -3.28/.03 -1.63/.06 -2.70/.01 -2.54/.10 NA NA NA",
        "MF": "-2.62/.06 -3.00/.03 -0.57/.04 -2.79/.01 -1.00/.10 NA NA NA",
        "RNF-2": "-2.40/.06 -3.03/.05 -0.44/.04 -2.73/.01 -0.30/.04 NA NA NA",
        "RNF-5": "-2.37/.04 -2.97/.03 -0.67/.15 -2.68/.01 -0.21/.09 NA NA NA",
    },
)

ABLATION = _table(
    "boston concrete energy power yacht",
    {
        "full": "-2.47/.05 -2.67/.05 -0.75/.04 -2.69/.01 -0.53/.07",
        "middle": "-2.53/.05 -2.77/.04 -0.78/.03 -2.73/.01 -0.88/.07",
        "LR": "-2.55/.04 -3.47/.02 -1.45/.03 -2.84/.01 -1.05/.06",
        "MLP": "-2.61/.04 -2.75/.05 -0.86/.04 -2.65/.01 -1.56/.09",
    },
)

GAMMA = _table(  # the paper does not state how protein was dequantised
    "kin8nm boston power concrete protein_dequantised yacht naval",
    {
        "gamma=0": "0.99/.01 -2.53/.05 -2.68/.01 -2.78/.05 -2.13/.01 -0.56/.10 6.48/.01",
        "gamma=0.5": "1.05/.01 -2.44/.04 -2.66/.01 -2.72/.04 -2.13/.01 -0.45/.07 6.29/.01",
    },
)

MULTIVARIATE = _table(
    "energy2 parkinsons temperature air skillcraft",
    {
        "ours (eta=0.1)": "1.84/.04 -0.54/.01 -0.68/.01 -0.67/.01 -1.66/.02",
        "ours (eta=0.01)": "1.86/.04 -0.56/.01 -0.72/.01 -0.62/.01 -1.57/.02",
        "ours (eta=0.1, no rot.)": "1.45/.07 -0.77/.01 -0.82/.01 -0.83/.01 -1.95/.02",
        "MDN+": "1.33/.02 -0.97/.01 -0.64/.01 -1.01/.01 -inf",
        "KMN+": "1.16/.03 -0.60/.01 -0.91/.01 -1.65/.01 -inf",
        "MDN": "-8.28/.91 -3.82/.08 -4.24/.04 -2.16/.06 -8.54/.14",
        "MAF": "-125/51 -20.1/1.7 -14.0/.4 -14.5/1.4 -81.1/8.2",
        "NSF": "-2.87/.11 -1.81/.03 -2.95/.04 0.47/.11 -8.68/.09",
        "RNF": "-19.4/4.2 -4.01/.25 -7.51/.62 -0.81/.26 -26.8/2.2",
        "MLP": "-3.48/.04 -4.86/.06 -14.01/.04 NA NA",
        "DDN": "0.14/.32 -0.14/.01 -0.71/.02 1.22/.02 -1.56/.02",
        "DDN (no VL)": "-1.56/.27 -0.17/.02 -0.84/.02 1.32/.02 -1.59/.03",
    },
)

REGIONS = _table(
    "energy2 parkinsons temperature air skillcraft",
    {
        "kmeans k=4": "1.865/.043 -0.561/.007 -0.721/.006 -0.621/.006 -1.577/.017",
        "kmeans k=8": "1.863/.042 -0.561/.007 -0.721/.006 -0.621/.006 -1.576/.017",
        "HDBSCAN": "1.864/.043 -0.560/.007 -0.722/.006 -0.621/.006 -1.577/.017",
    },
)

C0GAMMA = _table(
    "energy2 parkinsons temperature air skillcraft",
    {
        "c0=0.05, gamma=0.5": "1.48/.06 -0.76/.01 -0.80/.01 -0.78/.01 -1.88/.02",
        "c0=0.05, gamma=0.1": "1.36/.06 -0.76/.01 -0.84/.01 -0.92/.01 -2.16/.02",
        "c0=0.1, gamma=0.1": "1.18/.06 -0.83/.01 -0.86/.01 -0.96/.01 -2.30/.02",
    },
)

SIMULATIONS = _table(
    "squares half_gaussian gaussian_stick elastic_ring",
    {
        "ours (no rotations)": ".071/.002 .111/.002 .061/.002 .057/.001",
        "ours (12 rotations)": ".055/.001 .071/.001 .041/.001 .044/.001",
        "DDN": ".070 .099 .065 .056",
        "MAF": ".224 .088 .106 .172",
        "MDN": ".273 .219 .256 .424",
        "NSF": ".149 .173 .077 .235",
        "RNF": ".151 .134 .052 .075",
    },
)

# Training on one simulated set of 2000 rows, one core of an Apple M2.
SIMULATION_SECONDS = {
    "squares": 405.0,
    "half_gaussian": 414.0,
    "gaussian_stick": 407.0,
    "elastic_ring": 580.0,
}
