from benchopt import BaseDataset

from benchmark_utils import problems


class Dataset(BaseDataset):
    """Mixtures whose components overlap strongly (slow EM) or moderately."""

    name = "simulated"
    parameters = {
        "overlap": ["strong", "moderate"],
        "n_samples, n_features, n_components": [(100_000, 10, 10)],
    }
    test_parameters = {"n_samples, n_features, n_components": [(2_000, 3, 2)]}
    requirements = ["numpy"]

    def get_data(self):
        draw = {"strong": problems.overlapping, "moderate": problems.moderate}
        mixture = draw[self.overlap](
            self.n_samples, self.n_features, self.n_components, seed=0
        )
        return {"X": mixture.X, "n_components": self.n_components}
