from benchopt import BaseDataset

from benchmark_utils import corpora


class Dataset(BaseDataset):
    """Documents of latent Dirichlet allocation."""

    name = "simulated"
    parameters = {"n_documents, n_words, n_topics": [(5_000, 5_000, 50)]}
    test_parameters = {"n_documents, n_words, n_topics": [(100, 80, 5)]}
    requirements = ["numpy", "scipy"]

    def get_data(self):
        corpus = corpora.simulated(self.n_documents, self.n_words, self.n_topics)
        return {"X": corpus.train, "X_test": corpus.test}
