"""Print the table of speed and memory of VRGaussianMixture.

    python benchmarks/mixture_table.py
    python benchmarks/mixture_table.py --rows iteration threads --repeats 7
    python benchmarks/mixture_table.py --quick

Ratios are taken within one run: fits take turns and the minimum of the repetitions
counts; one thread is measured in CPU seconds. See ``benchmarks/README.md``.
"""

from harness import table
from mixture_rows import Settings, passes, processes, timing

GROUPS = {
    "iteration": timing.iteration_rows,
    "passes": passes.pass_rows,
    "time": passes.time_rows,
    "threads": timing.thread_rows,
    "memory": processes.memory_rows,
    "first": processes.first_rows,
}


def main(arguments=None):
    """Measure what was asked for and print it."""
    parser = table.make_parser(__doc__.splitlines()[0], GROUPS)
    parser.add_argument(
        "--no-extrapolation",
        action="store_true",
        help="run scikit-learn to the end for the row 'time' (minutes)",
    )
    options = parser.parse_args(arguments)
    repeats = min(2, options.repeats) if options.quick else options.repeats

    def settings(log):
        extrapolate = not options.no_extrapolation
        return Settings(options.quick, repeats, options.seeds, extrapolate, log)

    table.measure(GROUPS, options, settings)


if __name__ == "__main__":
    main()
