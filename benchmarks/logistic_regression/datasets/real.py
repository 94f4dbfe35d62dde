from benchopt import BaseDataset

from benchmark_utils import problems


class Dataset(BaseDataset):
    """Digits, and from the folder SKVREM_DATA Adult, MNIST, SecStr and newsgroups."""

    name = "real"
    parameters = {
        "problem": ["digits", "a9a", "mnist", "secstr", "news", "news-binary"]
    }
    test_parameters = {"problem": ["digits"]}
    requirements = ["numpy", "scipy", "scikit-learn"]

    def get_data(self):
        try:
            problem = problems.PROBLEMS[self.problem]()
        except problems.Unavailable as error:
            return {"X": str(error), "y": None}  # the objective skips it
        return {"X": problem.X, "y": problem.y}
