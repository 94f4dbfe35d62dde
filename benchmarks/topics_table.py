"""Print the table of speed and memory of VRPLSA and TemperedLDA.

    python benchmarks/topics_table.py
    python benchmarks/topics_table.py --rows pass held-out --corpora nips ap
    python benchmarks/topics_table.py --quick

The corpora are read from the folder SKVREM_DATA. Ratios are taken within one run: fits
take turns and the minimum of the repetitions counts; one thread is measured in CPU
seconds. See ``benchmarks/README.md``.
"""

from harness import table
from topics_rows import (
    Settings,
    convergence,
    corpora,
    held_out,
    lda,
    processes,
    timing,
)

GROUPS = {
    "pass": timing.pass_rows,
    "held-out": held_out.held_out_rows,
    "solvers": convergence.solver_rows,
    "threads": timing.thread_rows,
    "memory": processes.memory_rows,
    "stream": processes.stream_rows,
    "first": processes.first_rows,
    "lda-pass": lda.pass_rows,
    "lda-held-out": lda.held_out_rows,
    "lda-temperings": lda.tempering_rows,
}


def main(arguments=None):
    """Measure what was asked for and print it."""
    parser = table.make_parser(__doc__.splitlines()[0], GROUPS)
    parser.add_argument(
        "--corpora", nargs="+", choices=corpora.CORPORA, default=list(corpora.CORPORA)
    )
    parser.add_argument("--topics", nargs="+", type=int, default=[50, 100])
    parser.add_argument("--temperings", nargs="+", choices=lda.TEMPERINGS)
    peers = held_out.TARGETS
    parser.add_argument(
        "--peers", nargs="+", choices=peers, default=list(peers), help="of held-out"
    )
    parser.add_argument("--epochs", type=int, help="of lda-temperings, not the default")
    options = parser.parse_args(arguments)
    quick = options.quick
    repeats = min(2, options.repeats) if quick else options.repeats
    seeds = 1 if quick else options.seeds

    def settings(log):
        return Settings(
            quick,
            repeats,
            seeds,
            options.corpora,
            options.topics,
            log,
            options.temperings or lda.TEMPERINGS,
            options.epochs,
            options.peers,
        )

    table.measure(GROUPS, options, settings)


if __name__ == "__main__":
    main()
