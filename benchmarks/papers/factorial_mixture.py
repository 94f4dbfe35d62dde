r"""Figures 3 and 4 of Mandt et al. (2016): factorial mixtures, toy images and faces.

    python -m benchmarks.papers.factorial_mixture                  # both
    python -m benchmarks.papers.factorial_mixture --parts toy --seeds 3

The toy: eight 4 x 4 black and white images, each times a draw from U[0.5, 1], of which
any may be present (with probability 0.3) in 10,000 rows with noise 0.1; the prior of
the components has 0.35. The paper's images are not published; these are our own. Its
Eq. 21 divides by sigma_n where a variance stands, its Eq. 12 says neither, so both
readings are run: 0.1 and 0.35 as variances, and as deviations. As in the paper all
three are given, the posterior of the components is diagonal, and annealing starts at
10. Every method of a seed has the same data and the same start.

The faces: 2000 of the cropped Yale B faces (a file of the folder that SKVREM_DATA
names), at half the paper's resolution, 500 of them held out.
"""

import warnings
from functools import partial

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from benchmarks.harness import timed
from benchmarks.harness.data import read
from benchmarks.papers import measured
from skvrem import ComponentsDisplay, FactorialMixture
from skvrem.factorial._start import learned_temperature
from skvrem.schedules import LearnedTemperature

TRUTH, VI = "started at the truth", "VI"
READINGS = {
    "variances": {"noise_variance": 0.1, "component_variance": 0.35},
    "deviations": {"noise_variance": 0.1**2, "component_variance": 0.35**2},
}


class PrintedTempering(LearnedTemperature):
    """Eq. 9 as printed: the distribution over temperatures is replaced, not moved."""

    def observe(self, point):
        if len(self.inverses) > self.blind:
            self.target = self.optimum(*self.calibrate(point, None))

    def _next(self, count):
        if self.target is not None:
            self.share = self.target
        return self._mean()


class PrintedVT(FactorialMixture):
    """Variational tempering with 150 epochs of that, then a temperature of 1."""

    def _temperature(self, highest, total_weight):
        ours = learned_temperature(highest, 150, total_weight)
        options = {"total_weight": total_weight, "rate": 1.0, "end": 150}
        return PrintedTempering(
            ours.temperatures, ours.share, ours.calibrate, blind=ours.blind, **options
        )


def annealed(epochs, temperature=10.0, **options):
    return FactorialMixture(
        temperature=temperature,
        annealing_iter=epochs,
        posterior="meanfield",
        n_init=1,
        **options,
    )


def toy_methods():
    """What is compared, by name; the last two are what the package does by default."""
    return {
        VI: FactorialMixture(tempering=None, posterior="meanfield"),
        "AVI, 10 epochs": annealed(10),
        "AVI, 100 epochs": annealed(100),
        "VT as printed": PrintedVT(temperature=10.0, posterior="meanfield"),
        "VT": FactorialMixture(
            tempering="global",
            temperature=10.0,
            posterior="meanfield",
            annealing_iter=100,
        ),
        "AVI, 100 epochs, T auto": annealed(100, "auto"),
        "default (T auto, fullrank)": FactorialMixture(),
    }


def shapes():
    """Eight black and white images."""
    images = np.zeros((8, 4, 4))
    images[0, 0] = images[1, :, 0] = images[2, :, 3] = images[3, 3] = 1.0
    images[4, 1:3, 1:3] = images[7, :2, :2] = 1.0
    images[5], images[6] = np.eye(4), np.eye(4)[::-1]
    return images.reshape(8, 16)


def toy(seed, noise_variance, n_rows):
    """Rows and the components that they are made of."""
    rng = np.random.default_rng(seed)
    components = shapes() * rng.uniform(0.5, 1.0, (8, 1))
    codes = rng.uniform(size=(n_rows, 8)) < 0.3
    noise = np.sqrt(noise_variance) * rng.normal(size=(n_rows, 16))
    return codes @ components + noise, components


def run_toy(n_seeds, n_rows):
    """Return bounds by reading, method and seed, and the fits of the first seed."""
    bounds, first = {}, {}
    for reading, given in READINGS.items():
        given = {**given, "n_components": 8, "activation_prior": 0.3, "tol": 1e-4}
        rows = bounds[reading] = {TRUTH: []}
        for seed in range(n_seeds):
            X, components = toy(seed, given["noise_variance"], n_rows)
            truth = FactorialMixture(
                **given,
                posterior="meanfield",
                tempering=None,
                components_init=components,
            )
            fits = {TRUTH: truth, **toy_methods()}
            for name, fit in fits.items():
                fit.set_params(**given, max_iter=300, random_state=seed).fit(X)
                rows.setdefault(name, []).append(fit.objective_)
            if not seed:
                first[reading] = {n: fit.components_ for n, fit in fits.items()}
    return bounds, first


def print_toy(bounds):
    for reading, rows in bounds.items():
        truth = np.array(rows[TRUTH])
        plain = np.array(rows[VI])
        print(f"\nNoise and prior read as {reading}: bound a row at T=1, nats\n")
        print("| | mean ± sd | median | gap to the truth's, median | best | above VI |")
        print("|---|---|---|---|---|---|")
        for name, values in rows.items():
            x = np.array(values)
            wins = "" if name in (TRUTH, VI) else f"{(x > plain).sum()}/{len(x)}"
            print(
                f"| {name} | {x.mean():.3f} ± {x.std(ddof=min(1, len(x) - 1)):.3f} | "
                f"{np.median(x):.3f} | {np.median(truth - x):.3f} | {x.max():.3f} | "
                f"{wins} |"
            )


def draw_toy(first, path):
    """Components of the first seed, a row a method, for both readings."""
    from matplotlib import pyplot as plt

    names = [TRUTH, VI, "AVI, 10 epochs", "AVI, 100 epochs", "VT"]
    figure = plt.figure(figsize=(11, 4.4), layout="constrained")
    for part, (reading, fits) in zip(
        figure.subfigures(1, 2), first.items(), strict=True
    ):
        part.suptitle(f"read as {reading}")
        axes = part.subplots(len(names), 8)
        for row, name in zip(axes, names, strict=True):
            ComponentsDisplay(fits[name], (4, 4), titles=[""] * 8).plot(
                ax=row, cmap="gray", vmin=-0.2, vmax=1.0
            )
            row[0].set_title(name, loc="left", fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def faces(seed, n_rows=2000, n_held_out=500):
    """Return training and held-out images as rows, standardised over all pixels."""
    images = read("yaleb_cropped")["X"]
    order = np.random.default_rng(seed).permutation(len(images))[:n_rows]
    X = images[order].reshape(n_rows, -1).astype(np.float32)
    X -= X.mean()
    X /= X.std()
    return X[n_held_out:], X[:n_held_out], images.shape[1:]


def face_methods():
    """The paper's schedules; its start of VT is not said, so the same is taken."""
    return {
        VI: FactorialMixture(tempering=None, posterior="meanfield"),
        "AVI, 5 epochs": annealed(5, 6.0),
        "AVI, 50 epochs": annealed(50, 6.0),
        "VT": FactorialMixture(
            tempering="global",
            temperature=6.0,
            annealing_iter=50,
            posterior="meanfield",
        ),
        "default (all learned, fullrank)": FactorialMixture(),
    }


def run_faces(n_seeds, n_components):
    scores, fits = {}, {}
    for seed in range(n_seeds):
        train, test, shape = faces(seed)
        for reading, variance in (("variances", 0.5), ("deviations", 0.25)):
            for name, fit in face_methods().items():
                if not name.startswith("default"):
                    fit.set_params(
                        noise_variance=variance,
                        component_variance=variance,
                        activation_prior=0.3,
                    )
                elif reading == "deviations":
                    continue  # the same fit
                fit.set_params(
                    n_components=n_components, tol=0.5, max_iter=150, random_state=seed
                )
                seconds, _ = timed(partial(fit.fit, train), threads=2)
                found = fit.objective_, fit.score(test), seconds
                scores.setdefault((reading, name), []).append(found)
                if not seed:
                    fits[reading, name] = fit
    return scores, fits, shape, train.shape


def print_faces(scores, n_components, shape):
    n, d = shape
    print(f"\nFaces: {n} images of {d} pixels, {n_components} components")
    print("\n| read as | | bound a pixel | held out, a pixel | above VI | seconds |")
    print("|---|---|---|---|---|---|")
    for (reading, name), values in scores.items():
        bound, held_out, seconds = np.array(values).T
        plain = np.array(scores[reading, VI])[:, 1]
        wins = "" if name == VI else f"{(held_out > plain).sum()}/{len(plain)}"
        print(
            f"| {reading} | {name} | {bound.mean() / d:.5f} | "
            f"{held_out.mean() / d:.5f} ± {held_out.std() / d:.5f} | {wins} | "
            f"{seconds.mean():.1f} |"
        )


def draw_faces(fits, shape, path):
    """Components of VI and of the slow schedule, and temperatures by epoch."""
    from matplotlib import pyplot as plt

    chosen = [VI, "AVI, 50 epochs"]
    figure = plt.figure(figsize=(11, 5.6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(3, 1.1))
    for part, name in zip(left.subfigures(2, 1), chosen, strict=True):
        fit = fits["variances", name]
        order = np.argsort(-fit.summary()["variance share"].to_numpy())[:16]
        part.suptitle(name, fontsize=10)
        ComponentsDisplay(fit.components_[order], shape, titles=[""] * len(order)).plot(
            ax=part.subplots(2, 8), cmap="gray"
        )
    ax = right.subplots()
    for name in face_methods():
        fit = fits["variances", name]
        ax.plot(fit.history_["temperature"], label=name)
    ax.set(xlabel="epoch", ylabel="temperature")
    ax.legend(fontsize=7)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main():
    """Run, print the tables and save the pictures."""
    parser = measured.parser(__doc__)
    parser.add_argument("--parts", nargs="+", default=["toy", "faces"])
    parser.add_argument("--seeds", type=int, default=20, help="of the toy")
    parser.add_argument("--rows", type=int, default=10_000, help="of the toy")
    parser.add_argument("--face-seeds", type=int, default=5)
    parser.add_argument("--components", type=int, default=24, help="of the faces")
    options = parser.parse_args()
    options.figures.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", ConvergenceWarning)
    if "toy" in options.parts:
        bounds, first = run_toy(options.seeds, options.rows)
        print_toy(bounds)
        draw_toy(first, options.figures / "factorial_toy.png")
    if "faces" in options.parts:
        scores, fits, shape, size = run_faces(options.face_seeds, options.components)
        print_faces(scores, options.components, size)
        draw_faces(fits, shape, options.figures / "factorial_faces.png")


if __name__ == "__main__":
    main()
