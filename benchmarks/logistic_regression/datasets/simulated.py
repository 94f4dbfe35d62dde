from benchopt import BaseDataset

from benchmark_utils import problems


class Dataset(BaseDataset):
    """Ill-conditioned rows, two classes or ten, many rows or many columns."""

    name = "simulated"
    parameters = {"problem": ["dense", "multinomial", "wide", "big"]}
    test_parameters = {"problem": ["dense"]}
    requirements = ["numpy", "scipy"]

    def get_data(self):
        problem = problems.PROBLEMS[self.problem]()
        return {"X": problem.X, "y": problem.y}
