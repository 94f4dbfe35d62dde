from benchopt import BaseDataset

from benchmark_utils import corpora


class Dataset(BaseDataset):
    """The corpora of the folder SKVREM_DATA, nine tenths of the documents each."""

    name = "real"
    parameters = {"corpus": list(corpora.CORPORA)}
    requirements = ["numpy", "scipy"]

    def get_data(self):
        try:
            corpus = corpora.load(self.corpus)
        except corpora.Unavailable as error:
            # The objective skips it.
            return {"X": str(error), "X_test": None}
        return {"X": corpus.train, "X_test": corpus.test}
