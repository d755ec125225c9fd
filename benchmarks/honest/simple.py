"""The usual method for each truth: fitted to rows, it gives a function of new x and y, their log densities (n,)."""

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import gammaln
from scipy.stats import gaussian_kde, norm, t

Predictive = Callable[[np.ndarray, np.ndarray], np.ndarray]
DEGREES_OF_FREEDOM = (1e6, 30.0, 10.0, 6.0, 4.0, 3.0, 2.0, 1.5, 1.0)  # those of a t regression, normal first
EM_STEPS = 200
EM_CLOSE = 1e-8  # relative change of the scale at which the steps end
FOLDS = 5


def with_intercept(x: np.ndarray) -> np.ndarray:
    """Columns with a one before them."""
    return np.column_stack([np.ones(len(x)), x])


def least_squares(x: np.ndarray, y: np.ndarray) -> Predictive:
    """Linear regression with normal noise, one outcome or several; its predictive density is a Student t."""
    z, several = with_intercept(x), y.reshape(len(y), -1)
    n, p, d = len(z), z.shape[1], several.shape[1]
    root = np.linalg.qr(z, mode="r")
    slopes = np.linalg.lstsq(z, several, rcond=None)[0]
    residuals = several - z @ slopes
    df = n - p - d + 1
    half = np.linalg.cholesky(residuals.T @ residuals / df)

    def log_prob(x_new, y_new):
        z_new = with_intercept(x_new)
        widening = 1 + np.sum(np.linalg.solve(root.T, z_new.T) ** 2, axis=0)
        error = np.linalg.solve(half, (y_new.reshape(len(y_new), -1) - z_new @ slopes).T)
        distance = np.sum(error**2, axis=0) / widening
        constant = gammaln((df + d) / 2) - gammaln(df / 2) - d / 2 * np.log(df * np.pi) - np.log(np.diag(half)).sum()
        return constant - d / 2 * np.log(widening) - (df + d) / 2 * np.log1p(distance / df)

    return log_prob


def polynomial(x: np.ndarray, y: np.ndarray) -> Predictive:
    """Least squares on all products of up to three covariates."""
    from sklearn.preprocessing import PolynomialFeatures

    features = PolynomialFeatures(3, include_bias=False).fit(x)
    fitted = least_squares(features.transform(x), y)
    return lambda x_new, y_new: fitted(features.transform(x_new), y_new)


def linear_scales(x: np.ndarray, y: np.ndarray) -> Predictive:
    """Normal with a linear mean and a linear logarithm of the standard deviation, by maximum likelihood."""
    z = with_intercept(x)
    p = z.shape[1]

    def loss(parameters):
        error, log_scale = y - z @ parameters[:p], z @ parameters[p:]
        standard = error * np.exp(-log_scale)
        gradient = np.r_[-(standard * np.exp(-log_scale)) @ z, (1 - standard**2) @ z]
        return np.sum(log_scale + standard**2 / 2) / len(y), gradient / len(y)

    slopes = np.linalg.lstsq(z, y, rcond=None)[0]
    start = np.r_[slopes, np.log(np.std(y - z @ slopes)), np.zeros(p - 1)]
    found = minimize(loss, start, jac=True, method="BFGS").x
    return lambda x_new, y_new: norm.logpdf(
        y_new, with_intercept(x_new) @ found[:p], np.exp(with_intercept(x_new) @ found[p:])
    )


def student(x: np.ndarray, y: np.ndarray) -> Predictive:
    """Linear regression with Student t noise: EM for each number of degrees of freedom, and the most likely one."""
    z = with_intercept(x)
    low, high = np.quantile(y, [0.05, 0.95])  # outliers would put the start far off
    slopes = np.linalg.lstsq(z, np.clip(y, low, high), rcond=None)[0]
    scale = np.median(np.abs(y - z @ slopes))
    best, chosen = -np.inf, None
    for df in DEGREES_OF_FREEDOM[::-1]:
        slopes, scale = _student_em(z, y, df, slopes, scale)
        likelihood = np.mean(t.logpdf(y, df, z @ slopes, scale))
        if likelihood > best:
            best, chosen = likelihood, (df, slopes, scale)
    df, slopes, scale = chosen
    return lambda x_new, y_new: t.logpdf(y_new, df, with_intercept(x_new) @ slopes, scale)


def _student_em(z, y, df, slopes, scale) -> tuple[np.ndarray, float]:
    """Slopes and scale of a t regression with so many degrees of freedom."""
    for _ in range(EM_STEPS):
        error = y - z @ slopes
        weight = (df + 1) / (df + (error / scale) ** 2)
        slopes = np.linalg.solve((z.T * weight) @ z, (z.T * weight) @ y)
        before, scale = scale, np.sqrt(np.mean(weight * (y - z @ slopes) ** 2))
        if abs(scale - before) <= EM_CLOSE * scale:
            break
    return slopes, scale


def lasso(x: np.ndarray, y: np.ndarray) -> Predictive:
    """scikit-learn's lasso, penalty by cross-validation; normal with the standard deviation of left-out residuals."""
    from sklearn.linear_model import Lasso, LassoCV
    from sklearn.model_selection import cross_val_predict

    fitted = LassoCV(cv=FOLDS, max_iter=10_000).fit(x, y)
    left_out = cross_val_predict(Lasso(alpha=fitted.alpha_, max_iter=10_000), x, y, cv=FOLDS)
    scale = np.sqrt(np.mean((y - left_out) ** 2))
    return lambda x_new, y_new: norm.logpdf(y_new, fitted.predict(x_new), scale)


def logistic(x: np.ndarray, y: np.ndarray) -> Predictive:
    """Multinomial logistic regression; log probabilities of the values of y, all of which training rows have."""
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression(max_iter=1000).fit(x, y.astype(int))
    return lambda x_new, y_new: fitted.predict_log_proba(x_new)[
        np.arange(len(y_new)), np.searchsorted(fitted.classes_, y_new)
    ]


def without_gaps(x: np.ndarray, y: np.ndarray) -> Predictive:
    """Least squares on all columns, and on all but the first for rows where that is missing."""
    whole, rest = least_squares(x, y), least_squares(x[:, 1:], y)

    def log_prob(x_new, y_new):
        gap = np.isnan(x_new[:, 0])
        known = np.where(np.isnan(x_new), 0.0, x_new)
        return np.where(gap, rest(x_new[:, 1:], y_new), whole(known, y_new))

    return log_prob


def mixed(x: np.ndarray, y: np.ndarray, group: np.ndarray) -> Callable[..., np.ndarray]:
    """Linear mixed model with a random intercept for each group, by maximum likelihood.

    The log densities take the groups of the new rows after x and y; a group without training rows has the mean of all.
    """
    names, place = np.unique(group, return_inverse=True)
    z, count = with_intercept(x), np.bincount(place)

    def fitted(log_ratio):
        ratio = np.exp(log_ratio)  # variance of the intercepts over that of the noise
        pull = (1 - 1 / np.sqrt(1 + ratio * count))[place]
        zs, ys = _pulled(z, place, pull), _pulled(y[:, None], place, pull)[:, 0]
        slopes = np.linalg.lstsq(zs, ys, rcond=None)[0]
        variance = np.mean((ys - zs @ slopes) ** 2)
        deviance = len(y) * np.log(variance) + np.log1p(ratio * count).sum()
        return deviance, ratio, slopes, variance

    best = minimize_scalar(lambda log_ratio: fitted(log_ratio)[0], bounds=(-10, 10), method="bounded").x
    _, ratio, slopes, variance = fitted(best)
    shrinkage = ratio * count / (1 + ratio * count)
    effect = shrinkage * np.bincount(place, y - z @ slopes) / count

    def log_prob(x_new, y_new, group_new):
        where = np.clip(np.searchsorted(names, group_new), 0, len(names) - 1)
        known = names[where] == group_new
        center = with_intercept(x_new) @ slopes + np.where(known, effect[where], 0.0)
        left = ratio * np.where(known, 1 - shrinkage[where], 1.0)
        return norm.logpdf(y_new, center, np.sqrt(variance * (1 + left)))

    return log_prob


def _pulled(columns: np.ndarray, place: np.ndarray, pull: np.ndarray) -> np.ndarray:
    """Columns (n, m) minus their group's mean times `pull` (n,): whitens the errors of a random intercept."""
    count = np.bincount(place)
    means = np.column_stack([np.bincount(place, column) / count for column in columns.T])
    return columns - pull[:, None] * means[place]


def best_without_covariates(x: np.ndarray, y: np.ndarray) -> Predictive:
    """Of a normal, a Student t and a kernel density fitted to y alone, the one that is best on the new rows.

    No method could know which that is: it is a hard judge.
    """
    normal, student_t, kernel = norm(y.mean(), y.std(ddof=1)), t(*t.fit(y)), gaussian_kde(y)

    def log_prob(x_new, y_new):
        found = [normal.logpdf(y_new), student_t.logpdf(y_new), kernel.logpdf(y_new)]
        return max(found, key=np.mean)

    return log_prob


def of_levels(x, y: np.ndarray) -> Predictive:
    """The mixed model of frames with numbers a and b and a category `level`."""
    numbers = ["a", "b"]
    fitted = mixed(x[numbers].to_numpy(), y, x["level"].to_numpy(dtype=str))
    return lambda x_new, y_new: fitted(x_new[numbers].to_numpy(), y_new, x_new["level"].to_numpy(dtype=str))
