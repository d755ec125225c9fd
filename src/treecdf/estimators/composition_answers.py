"""The methods of a fitted model of compositions: draws, densities, probabilities of zeros, functionals."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits

from treecdf._common.random import as_generator
from treecdf._common.typing import Array, Ints
from treecdf._common.validation import check_setting, is_int
from treecdf.data.columns import Covariates
from treecdf.data.compositions import check_samples, read_compositions
from treecdf.data.dates import as_days
from treecdf.data.table import read_covariates, read_one_for_each
from treecdf.data.units import units_of_groups
from treecdf.estimators.state import schema_of
from treecdf.flows.composition.drawing import At, draw_ratios
from treecdf.flows.composition.functionals import READY, Functional, bray_curtis, summaries
from treecdf.flows.composition.presence import Effects, EffectsWithTrend, Presence
from treecdf.flows.composition.ratios import Link, Ratios
from treecdf.flows.composition.reads import Depths, as_reads, check_depths, floors, thinned
from treecdf.flows.composition.subjects import Subjects

_ZERO_DRAWS = 200  # Drawn presences that probabilities of zeros are means over, by default.
_MOST_AT_ONCE = 2_000_000  # Numbers in drawn compositions that functionals are taken of at a time.


class CompositionAnswers:
    """The methods of a fitted `CompositionalFlow`."""

    counts: bool
    normalize: bool
    covariates_: Covariates
    n_taxa_: int
    taxa_: tuple[str, ...]
    order_: Ints
    effects_: EffectsWithTrend | Effects
    presence_: Presence
    links_: tuple[Link, ...]
    depths_: Depths
    subjects_: Subjects

    def sample(
        self,
        X: ArrayLike,
        n_samples: int = 1,
        random_state: Any = None,
        *,
        depth: ArrayLike | None = None,
        subject: ArrayLike | None = None,
        time: ArrayLike | None = None,
    ) -> Any:
        """Draws of compositions, each with sum one, or of counts, each with sum `depth`; absent taxa are 0.

        Parameters
        ----------
        X : array or frame of shape (n, q)
            Covariates.
        n_samples : int, default 1
            Draws at each row.
        random_state : int, Generator, RandomState or None, default None
            Seed of the draws.
        depth : int or array of shape (n,), default None
            For models of counts: reads of each sample. None: drawn from the depths of the training samples. Below the
            smallest of these, draws with that depth are thinned; beyond the largest, presences are those at the
            largest.
        subject : array of shape (n,), default None
            Subject of each sample, for models fitted with subjects. Samples of one subject are correlated: the k-th
            draws of its rows are one history. Subjects of the training rows are not treated differently. None: samples
            are independent.
        time : array of shape (n,), default None
            Time of each sample, for models fitted with times; dates and durations count in days.

        Returns
        -------
        array of shape (n, n_samples, taxa)
            The draws. If X is a pandas frame and the taxa have names, a frame of n * n_samples rows, with the taxa as
            columns and an index of the rows of X and the numbers of the draws.

        Examples
        --------
        >>> import numpy as np
        >>> from treecdf import CompositionalFlow
        >>> rng = np.random.default_rng(0)
        >>> x, y = rng.normal(size=(40, 1)), rng.dirichlet([1, 2, 3], 40)
        >>> model = CompositionalFlow(random_state=0).fit(x, y)
        >>> model.sample(x[:3], n_samples=2, random_state=0).shape
        (3, 2, 3)
        """
        check_is_fitted(self, "links_")
        check_setting("n_samples", n_samples, is_int(n_samples) and n_samples >= 0, "an integer of at least 0")
        x = self.covariates_.filled(read_covariates(schema_of(self), X))
        kin = self._read_subjects(subject, time, len(x))
        return self._named(X, self._drawn(x, n_samples, depth, kin, as_generator(random_state)))

    def _drawn(
        self,
        x: Array,
        n_samples: int,
        depth: ArrayLike | None,
        kin: tuple[Ints, Array] | None,
        rng: np.random.Generator,
    ) -> Array:
        """Draws (n, n_samples, taxa) at encoded covariates x (n, q), given depths, and subjects and times `kin`."""
        at = self._at(x, n_samples, depth, rng)
        with threadpool_limits(1, user_api="blas"):
            effects = self.effects_(at.x)
            drawn = np.zeros((len(at.x), self.n_taxa_))
            shape = n_samples, len(self.order_)
            if kin is None:
                uniforms = rng.random((shape[1], len(at.x))), rng.random((shape[1], len(at.x)))
            else:
                uniforms = self.subjects_.uniforms(*kin, shape, rng)
            ratios = draw_ratios(at, effects, self.presence_, self.links_, uniforms, exact=kin is not None)
            drawn[:, self.order_] = ratios.abundances()
        if at.depth is not None:
            drawn = thinned(as_reads(drawn, self.depths_.learnt(at.depth)), at.depth, rng)
        return drawn.reshape(len(x), n_samples, self.n_taxa_)

    def log_prob(self, X: ArrayLike, Y: ArrayLike) -> Array:
        """Log density of compositions, with respect to the measure in the notes of `CompositionalFlow`.

        Parameters
        ----------
        X : array or frame of shape (n, q)
            Covariates.
        Y : array, frame, sparse matrix or BIOM table of shape (n, taxa)
            Compositions; columns with names may be in any order. For models of counts: counts, whose sums are the
            depths.

        Returns
        -------
        array of shape (n,)
            Nats; -inf where a taxon is present that no training row had. For counts it is the log density of their
            shares given the depth, which may be compared with that of models of shares; minus (taxa present - 1) *
            log(depth) it is nearly the log probability of the counts.

        Examples
        --------
        >>> import numpy as np
        >>> from treecdf import CompositionalFlow
        >>> rng = np.random.default_rng(0)
        >>> x, y = rng.normal(size=(40, 1)), rng.dirichlet([1, 2, 3], 40)
        >>> model = CompositionalFlow(random_state=0).fit(x, y)
        >>> model.log_prob(x, y).shape
        (40,)
        """
        check_is_fitted(self, "links_")
        counts = self._has_depths
        given = read_compositions(Y, self.normalize, self.n_taxa_, getattr(self, "taxa_", None), counts)
        check_samples(X, given.samples)
        x = self.covariates_.filled(read_covariates(schema_of(self), X))
        if len(x) != len(given.y):
            raise ValueError(f"X has {len(x)} rows and Y {len(given.y)}: expected as many.")
        unseen = np.setdiff1d(np.arange(self.n_taxa_), self.order_)
        possible = ~given.y[:, unseen].any(axis=1)
        total = np.full(len(x), -np.inf)
        if possible.any():
            at = self._at_depths(x[possible], given.total[possible] if counts else None)
            with threadpool_limits(1, user_api="blas"):
                total[possible] = self._log_prob(at, given.y[possible][:, self.order_])
        return total

    def _log_prob(self, at: At, y: Array) -> Array:
        """Log densities (n,) of compositions y (n, K) of taxa in order."""
        ratios, effects = Ratios.of(y), self.effects_(at.x)
        log_prob = self.presence_.log_prob(effects, ratios.present)
        for k, link in enumerate(self.links_):
            rows = np.flatnonzero(ratios.follows[:, k])
            if len(rows):
                given = link.given(at.x[rows], effects[rows], ratios.features(k)[rows])
                floor = None if at.floor is None else at.floor[rows]
                log_prob[rows] += link.log_prob(ratios.log_ratio(k)[rows], given, floor)
        # the Jacobian from log ratios to all but one of the abundances
        return log_prob - ratios.log_y.sum(axis=1)

    def score(self, X: ArrayLike, Y: ArrayLike) -> float:
        """Mean log density, so that model selection maximises the likelihood.

        Parameters
        ----------
        X : array or frame of shape (n, q)
            Covariates.
        Y : array, frame, sparse matrix or BIOM table of shape (n, taxa)
            Compositions.

        Returns
        -------
        float
            The mean of `log_prob`, in nats; higher is better.
        """
        return float(self.log_prob(X, Y).mean())

    def zero_prob(
        self,
        X: ArrayLike,
        n_draws: int = _ZERO_DRAWS,
        random_state: Any = 0,
        *,
        depth: ArrayLike | None = None,
    ) -> Any:
        """Probability that each taxon is absent; for counts, that it has no read at a depth.

        Parameters
        ----------
        X : array or frame of shape (n, q)
            Covariates.
        n_draws : int, default 200
            Drawn presences of the other taxa that the probabilities are means over.
        random_state : int, Generator, RandomState or None, default 0
            Seed of these draws.
        depth : int or array of shape (n,), default None
            For models of counts: reads of each sample, held within the range of training. None: drawn from the depths
            of training. What remains at a large depth is absence; what a small depth adds is shallow sequencing.

        Returns
        -------
        array of shape (n, taxa)
            Probabilities; their standard errors are at most 0.5 / sqrt(n_draws). A frame if X is a pandas frame and the
            taxa have names.

        Examples
        --------
        >>> import numpy as np
        >>> from treecdf import CompositionalFlow
        >>> rng = np.random.default_rng(0)
        >>> x, y = rng.normal(size=(40, 1)), rng.dirichlet([1, 2, 3], 40)
        >>> model = CompositionalFlow(random_state=0).fit(x, y)
        >>> model.zero_prob(x[:3]).shape
        (3, 3)
        """
        check_is_fitted(self, "links_")
        check_setting("n_draws", n_draws, is_int(n_draws) and n_draws >= 1, "an integer of at least 1")
        rng = as_generator(random_state)
        x = self.covariates_.filled(read_covariates(schema_of(self), X))
        zero = np.ones((len(x), self.n_taxa_))
        chance = np.zeros((len(x), len(self.order_)))
        with threadpool_limits(1, user_api="blas"):
            for _ in range(n_draws):
                effects = self.effects_(self._at(x, 1, depth, rng).x)
                chance += self.presence_.draw(effects, rng.random((len(self.order_), len(x))))[1]
        zero[:, self.order_] = 1 - chance / n_draws
        return self._named(X, zero)

    def functional(
        self,
        f: str | Functional,
        X: ArrayLike,
        *,
        level: float = 0.9,
        n_draws: int = 200,
        reference: ArrayLike | None = None,
        depth: ArrayLike | None = None,
        random_state: Any = 0,
    ) -> Any:
        """Conditional mean and interval of a number that is computed from a sample.

        Parameters
        ----------
        f : {"shannon", "richness", "bray_curtis"} or function
            Shannon diversity in nats, number of taxa present, Bray-Curtis distance to the reference, or a function of
            draws (m, taxa), compositions or counts as `sample` returns them, that returns numbers (m,).
        X : array or frame of shape (n, q)
            Covariates.
        level : float, default 0.9
            Probability of the central interval.
        n_draws : int, default 200
            Draws at each row from which mean and interval are computed.
        reference : array of shape (taxa,), or series with the names of the taxa, default None
            The composition that "bray_curtis" measures distances to.
        depth : int or array of shape (n,), default None
            As in `sample`.
        random_state : int, Generator, RandomState or None, default 0
            Seed of the draws.

        Returns
        -------
        array of shape (n, 3)
            Mean, lower and upper end. If X is a pandas frame, a frame with columns of these names.

        Examples
        --------
        >>> import numpy as np
        >>> from treecdf import CompositionalFlow
        >>> rng = np.random.default_rng(0)
        >>> x, y = rng.normal(size=(40, 1)), rng.dirichlet([1, 2, 3], 40)
        >>> model = CompositionalFlow(random_state=0).fit(x, y)
        >>> model.functional("shannon", x[:2]).shape
        (2, 3)
        """
        check_is_fitted(self, "links_")
        check_setting("level", level, isinstance(level, float) and 0 < level < 1, "a number between 0 and 1")
        check_setting("n_draws", n_draws, is_int(n_draws) and n_draws >= 1, "an integer of at least 1")
        rng, function = as_generator(random_state), self._functional(f, reference)
        x = self.covariates_.filled(read_covariates(schema_of(self), X))
        at_once = max(1, _MOST_AT_ONCE // (n_draws * self.n_taxa_))
        reads = None if depth is None else self._read_depth(depth, len(x))
        parts = [np.empty((0, 3))]
        for start in range(0, len(x), at_once):
            rows = np.arange(start, min(start + at_once, len(x)))
            drawn = self._drawn(x[rows], n_draws, None if reads is None else reads[rows], None, rng)
            values = np.asarray(function(drawn.reshape(-1, self.n_taxa_)), dtype=np.float64)
            if values.shape != (len(rows) * n_draws,):
                raise ValueError(f"Expected f to return numbers of shape ({len(rows) * n_draws},); got {values.shape}.")
            parts.append(summaries(values.reshape(len(rows), n_draws), level))
        result, frame = np.concatenate(parts), cast(Any, X)
        if not (hasattr(frame, "index") and hasattr(frame, "iloc")):
            return result
        import pandas as pd

        return pd.DataFrame(result, index=frame.index, columns=["mean", "lower", "upper"])

    def _functional(self, f: str | Functional, reference: Any) -> Functional:
        """The function that f names."""
        named = [*READY, "bray_curtis"]
        check_setting("f", f, callable(f) or f in named, f"a function or one of {', '.join(named)}")
        if f != "bray_curtis":
            check_setting("reference", reference, reference is None, "None: only bray_curtis has one")
            return READY[f] if isinstance(f, str) else f
        if reference is None:
            raise ValueError("bray_curtis needs a reference: the composition that distances are measured to.")
        has_names = hasattr(reference, "to_frame") and hasattr(reference, "index")
        table = reference.to_frame().T if has_names else np.asarray(reference)[None]
        point = read_compositions(table, True, self.n_taxa_, getattr(self, "taxa_", None)).y[0]
        return lambda drawn: bray_curtis(drawn, point)

    @property
    def _has_depths(self) -> bool:
        """Whether the fitted model is one of counts."""
        return hasattr(self, "depths_")

    def _at(self, x: Array, n_samples: int, depth: ArrayLike | None, rng: np.random.Generator) -> At:
        """The rows to draw at; depths that are not given are drawn."""
        n = len(x)
        if not self._has_depths and depth is not None:
            raise ValueError("depth is for a model of counts: CompositionalFlow(counts=True).")
        repeated = np.repeat(x, n_samples, axis=0)
        if not self._has_depths:
            return At(repeated, None, None)
        if depth is None:
            reads = self.depths_.draw(n * n_samples, rng)
        else:
            reads = np.repeat(self._read_depth(depth, n), n_samples)
        at = self._at_depths(repeated, self.depths_.learnt(reads))
        return At(at.x, at.floor, reads)

    def _at_depths(self, x: Array, depth: Array | None) -> At:
        """The rows with depths (n,), if the model is one of counts."""
        if depth is None:
            return At(x, None, None)
        return At(np.column_stack([x, self.depths_.covariate(depth)]), floors(np.log(depth)), depth)

    def _read_depth(self, depth: ArrayLike, n: int) -> Array:
        """Depths (n,)."""
        reads = read_one_for_each(depth, "depth", n)
        check_depths(reads)
        return reads

    def _read_subjects(self, subject: Any, time: Any, n: int) -> tuple[Ints, Array] | None:
        """Numbers of subjects (n,) and times (n,); None without subjects."""
        if subject is None:
            if time is not None:
                raise ValueError("time goes with subject: it says when samples of one subject were taken.")
            return None
        if not hasattr(self, "subjects_"):
            raise ValueError("subject needs a model that knows how alike samples of one are: fit(X, Y, subject=...).")
        if self.subjects_.has_times != (time is not None):
            known = "was fitted with times" if time is None else "was fitted without times"
            raise ValueError(f"time must be given to both fit and sample, or to none: the model {known}.")
        return read_subjects(subject, time, n)

    def _named(self, X: Any, values: Array) -> Any:
        """Values (n, taxa) or (n, draws, taxa) as a pandas frame if X is one and the taxa have names."""
        taxa = getattr(self, "taxa_", None)
        if taxa is None or not hasattr(X, "index") or not hasattr(X, "iloc"):
            return values
        import pandas as pd

        if values.ndim == 2:
            return pd.DataFrame(values, index=X.index, columns=list(taxa))
        rows = np.repeat(np.arange(len(values)), values.shape[1])
        draws = np.tile(np.arange(values.shape[1]), len(values))
        index = pd.MultiIndex.from_arrays([X.index.take(rows), draws], names=[X.index.name or "sample", "draw"])
        return pd.DataFrame(values.reshape(-1, len(taxa)), index=index, columns=list(taxa))


def read_subjects(subject: ArrayLike, time: ArrayLike | None, n: int) -> tuple[Ints, Array]:
    """Numbers of subjects (n,), from 0 on, and times (n,), all 0 if there are none."""
    number = np.unique(units_of_groups(subject, n), return_inverse=True)[1]
    times = np.zeros(n) if time is None else read_one_for_each(as_days(time), "time", n)
    if not np.isfinite(times).all():
        raise ValueError(f"time of row {int(np.argmin(np.isfinite(times)))} is missing or infinite.")
    return number.astype(np.int64), times
