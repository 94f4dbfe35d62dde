from benchopt import BaseDataset

from benchmark_utils import problems


class Dataset(BaseDataset):
    """Digits (ships with scikit-learn), MNIST and a chest accelerometer.

    The last two from the folder SKVREM_DATA; MNIST otherwise from OpenML.
    """

    name = "real"
    parameters = {
        "data": ["digits", "mnist", "chest"],
        "n_components": [10],
    }
    test_parameters = {"data": ["digits"], "n_components": [10]}
    requirements = ["numpy", "scikit-learn"]

    def get_data(self):
        load = {
            "digits": lambda: problems.digits_cloud(20_000),
            "mnist": problems.mnist_pca,
            "chest": problems.chest,
        }
        try:
            X = load[self.data]()
        except problems.Unavailable as error:
            X = str(error)  # the objective skips it
        return {"X": X, "n_components": self.n_components}
