r"""The passes of ``_kernels.py`` with all states in registers, for few states.

Numbers are those of Sidrow et al. (2023). Messages keep the scale that they have but
for powers of two, taken from the sum of a step before, so that no step waits for a
division or a logarithm:

    b_t,i = exp(l_t,i - l_t,r)
    alpha_t = 2^-e_t (alpha_{t-1} A) b_t,   e_t the exponent of sum alpha_{t-1}   (5)
    log p(y_1..y_t) = log sum alpha_t + sum_s (l_s,r + log(2) e_s)                (4)
    rho_t = b_t m_t 2^-e_t,   m_{t-1} = A rho_t                                   (6)
    gamma_t = alpha_t m_t,    xi_t(i, j) = alpha_{t-1,i} A_ij rho_t,j          (7, 8)

r is one state for all rows, whose density needs no exponential and whose own part in
the log-likelihood is left to the caller; or, where other states are too much likelier
somewhere, the likeliest of each row.

At the right end m is such that sum alpha m is the weight; then it is everywhere. Where
a sequence starts, the matrix A has the initial distribution in every row.

What comes in at both ends of a lane is found by runs from every state, over some steps
beyond: the product of all A diag(b_t) has equal rows, but for factors, where the chain
has forgotten what was before. If it has not within the lane, the product is that of all
its steps, and as good.

States are as many as the tuple `states` is long, so that compilers know. Eight lanes
are run over at a time, a *half* of a group, 0 or 8. What the kernels take is

    rows      columns of the groups and their number, `first` and `second` of the
              features (offsets in a tile; columns come first, and are so many), theta
              (n_features + 1, m) with that of 1 before all others, a tuple as long as
              m, and of one half which it is; of one r for all rows, which is the last
              state, theta is of the m = n_states - 1 others, minus that of r
    chain     start, transitions, and these transposed
    events    of each half, by step: `event_step`, `event_lane`, the weights of
              sequences that end there, and by how much more these are than of those
              that begin; and the bounds of the halves among them
    room      alpha (n_steps + 1, n_states, WIDTH) from the message at the left on, b
              (n_steps, m, WIDTH), what powers of two have taken out, and sums of max l,
              or of one r for all rows the highest l - l_r (WIDTH)
"""

import math

import numpy as np

from skvrem.hmm.forward_backward._kernels import LANES, NOWHERE, STEPS, TILE
from skvrem.utils._jit import CONTRACT, inner_kernel, kernel
from skvrem.utils._simd import (
    WIDTH,
    add,
    add_multiples,
    add_outer,
    as_integer,
    count_power,
    exp_all,
    gather_all,
    largest,
    largest_of,
    load,
    load_all,
    mul,
    prefetch,
    scale_all,
    splat_all,
    store,
    store_all,
    sum_all,
    times_all,
    times_matrix,
    unscale,
    widen,
    without,
    zero_without,
)

# Steps that are looked at together, while they are close.
CHUNK = 32
# Tiles ahead whose columns are asked for, as what comes from memory takes a while.
SOON = 3
# Steps beyond a lane that are tried first; then twice as many, up to a third of all.
TRIED = 48
# Messages that differ by no more, relatively, are the same.
SAME = 1e-14
# Differences of log-densities to that of one state for all rows are no larger.
HIGHEST = 500.0
# Powers of two that messages are scaled by go no farther.
FARTHEST = 1000.0
LOG_2 = math.log(2.0)
# What `_products` says of the steps at the ends of lanes.
ENOUGH, ALL, FEW = 0, 1, 2
ONE, THREE = (0,), (0, 0, 0)


@kernel(forceinline=True)
def _place(step, n_columns, half):
    """Where a step of the columns begins."""
    return step // STEPS * (n_columns * TILE) + step % STEPS * LANES + half


@kernel(fastmath=CONTRACT)
def _ahead(rows, transitions, begin, end, room, states):
    """Fill b and alpha for some steps from the one before (Eq. 5).

    What becomes of the log-densities is kept in `top`.
    """
    columns, n_columns, first, second, singles, theta, others, half = rows
    alpha, b, counts, top = room
    n, m, tops, count = len(states), len(others), load(top, 0), load(counts, 0)
    message = load_all(alpha, begin * n * WIDTH, WIDTH, states)
    soon = np.uint64(columns.ctypes.data + SOON * n_columns * TILE * columns.itemsize)
    for step in range(begin, end):
        at = _place(step, n_columns, half)
        logs = splat_all(theta, 0, others)
        for p in range(singles):
            prefetch(soon + np.uint64(8) * np.uint64(at + first[p]))
            x = load(columns, at + first[p])
            logs = add_multiples(logs, theta, (p + 1) * m, x)
        for p in range(singles, first.size):
            x = mul(load(columns, at + first[p]), load(columns, at + second[p]))
            logs = add_multiples(logs, theta, (p + 1) * m, x)
        highest = largest_of(logs)
        if m < n:
            tops = largest(highest, tops)
        else:
            tops = add(tops, highest)
            logs = without(logs, highest)
        density, power = exp_all(logs), unscale(sum_all(message))
        store_all(b, step * m * WIDTH, WIDTH, density)
        density = widen(scale_all(density, power), power, states)
        message = times_all(times_matrix(message, transitions), density)
        store_all(alpha, (step + 1) * n * WIDTH, WIDTH, message)
        count = count_power(count, power)
    store(counts, 0, count)
    store(top, 0, tops)


@kernel(fastmath=CONTRACT)
def _forward(transitions, begin, end, room, states, others):
    """Fill alpha again where b is known."""
    alpha, b, counts, _ = room
    n, m, count = len(states), len(others), load(counts, 0)
    message = load_all(alpha, begin * n * WIDTH, WIDTH, states)
    for step in range(begin, end):
        power = unscale(sum_all(message))
        density = scale_all(load_all(b, step * m * WIDTH, WIDTH, others), power)
        density = widen(density, power, states)
        message = times_all(times_matrix(message, transitions), density)
        store_all(alpha, (step + 1) * n * WIDTH, WIDTH, message)
        count = count_power(count, power)
    store(counts, 0, count)


@kernel
def _lane_sum(alpha, step, n, lane):
    total = 0.0
    for i in range(n):
        total += alpha[(step * n + i) * WIDTH + lane]
    return total


@kernel
def _exponents(counts, lane, n_steps):
    """What `n_steps` powers of two have taken out."""
    return 1023 * n_steps - as_integer(counts[lane])


@kernel
def _run(rows, chain, events, begin, end, low, high, room, states):
    """Run over some steps from the message that alpha holds before them.

    b is known already of the steps from `low` to `high`. Returns what events change in
    the log-likelihood.
    """
    start, transitions, _ = chain
    event_step, event_lane, _, event_change = events
    alpha, b, counts, top = room
    n, event, value, step, others = len(states), 0, 0.0, begin, rows[6]
    m = len(others)
    for lane in range(WIDTH):
        counts[lane] = 0.0
        top[lane] = 0.0
    while event < event_step.size and event_step[event] < begin:
        event += 1
    while step < end:
        stop, begun = min(step + CHUNK, end), event
        if event < event_step.size:
            stop = min(stop, max(event_step[event], step + 1))
        while event < event_step.size and event_step[event] == step:
            lane = event_lane[event]
            share = math.log(_lane_sum(alpha, step, n, lane))
            share += LOG_2 * _exponents(counts, lane, step - begin)
            if m == n:
                share += top[lane]
            value += event_change[event] * share
            event += 1
        if step < low or stop > high:
            _ahead(rows, transitions, step, stop, room, states)
        else:
            _forward(transitions, step, stop, room, states, others)
        for e in range(begun, event):
            lane = event_lane[e]
            by = _lane_sum(alpha, step, n, lane)
            by *= 2.0 ** (1 - math.frexp(by)[1])  # as `unscale`
            for i in range(n):
                density = b[(step * m + i) * WIDTH + lane] if i < m else 1.0
                at = ((step + 1) * n + i) * WIDTH + lane
                alpha[at] = by * start[i] * density
        step = stop
    return value


@kernel
def _is_forgotten(products, which, n):
    """Whether in every lane all rows of a product that are not 0 agree."""
    for lane in range(WIDTH):
        for j in range(n):
            low, high = math.inf, 0.0
            for i in range(n):
                total = 0.0
                for k in range(n):
                    total += products[which, i, k, lane]
                if total > 0.0:
                    low = min(low, products[which, i, j, lane])
                    high = max(high, products[which, i, j, lane])
            if high - low > SAME * high:
                return False
    return True


@kernel(forceinline=True)
def _half(number, rows, events, n_steps):
    """Rows and events of one half of those of all."""
    columns, n_columns, first, second, singles, theta, others = rows
    step, lane, ends, change, bounds = events
    size, begin, end = n_steps * n_columns * LANES, bounds[number], bounds[number + 1]
    own = columns[number // 2 * size : (number // 2 + 1) * size]
    here = own, n_columns, first, second, singles, theta, others, number % 2 * WIDTH
    return here, (step[begin:end], lane[begin:end], ends[begin:end], change[begin:end])


@kernel
def products(rows, chain, events, n_steps, most, room, out, exponents, states):
    """Find what chains do at both ends of the lanes of some halves.

    See `_products`; false, with some of `out` (n_halves, 2, n_states, n_states, WIDTH)
    and of `exponents` (n_halves, 2, n_states, WIDTH), where `most` steps are not enough
    for one.
    """
    for half in range(len(out)):
        own, happens = _half(half, rows, events, n_steps)
        found = out[half], exponents[half]
        said = _products(own, chain, happens, n_steps, most, room, *found, states)
        if said == FEW:
            return False
        if said == ALL:
            out[half, 1], exponents[half, 1] = out[half, 0], exponents[half, 0]
    return True


@inner_kernel
def _products(rows, chain, events, n_steps, most, room, out, exponents, states):
    """Products of A diag(b_t) over enough steps at both ends of eight lanes.

    `out` (2, n_states, n_states, WIDTH) are those of the last and of the first steps,
    with rows that sum to 1, times two to the `exponents` (2, n_states, WIDTH). Returns
    ALL where the last are all steps, and the first are not looked at, and FEW where
    `most` steps are not enough.
    """
    n, alpha, counts = len(states), room[0], room[2]
    for which in range(2):
        steps, low, high = min(TRIED, n_steps), 0, 0
        while True:
            begin = 0 if which else n_steps - steps
            end = begin + steps
            for i in range(n):
                for at in range(n * WIDTH):
                    alpha[begin * n * WIDTH + at] = 1.0 if at // WIDTH == i else 0.0
                _run(rows, chain, events, begin, end, low, high, room, states)
                low, high = begin, end
                for lane in range(WIDTH):
                    total = _lane_sum(alpha, end, n, lane)
                    exponent = -math.inf
                    if total > 0.0:
                        exponent = math.log2(total) + _exponents(counts, lane, steps)
                    exponents[which, i, lane] = exponent
                    for j in range(n):
                        value = alpha[(end * n + j) * WIDTH + lane]
                        value = value / total if total > 0.0 else 0.0
                        out[which, i, j, lane] = value
            if steps == n_steps or _is_forgotten(out, which, n):
                break
            steps = 2 * steps if 3 * steps < n_steps else n_steps
            if steps > most:
                return FEW
        if steps == n_steps:
            return ENOUGH if which else ALL
    return ENOUGH


@kernel
def hand_over(out, exponents, continues, carried, left, right):
    """Find the messages at both ends of all lanes from what `products` found.

    Arrays are (n_halves, ..., WIDTH). `continues` (n_lanes + 1) says where a lane goes
    on with the sequence of the one before; `carried` is the message before the first.
    """
    n, n_lanes = left.shape[1], len(continues) - 1
    scale = np.empty(n)
    for at in range(n_lanes):
        half, lane = at // WIDTH, at % WIDTH
        if not continues[at]:
            for j in range(n):
                left[half, j, lane] = 1.0 / n if at else carried[j]
            continue
        before, by = (at - 1) // WIDTH, (at - 1) % WIDTH
        largest, total = -math.inf, 0.0
        for i in range(n):
            scale[i], x = -math.inf, left[before, i, by]
            if x > 0.0:
                scale[i] = math.log2(x) + exponents[before, 0, i, by]
            largest = max(largest, scale[i])
        for j in range(n):
            value = 0.0
            for i in range(n):
                value += 2.0 ** (scale[i] - largest) * out[before, 0, i, j, by]
            left[half, j, lane] = value
            total += value
        for j in range(n):
            left[half, j, lane] /= total
    for at in range(n_lanes - 1, -1, -1):
        half, lane = at // WIDTH, at % WIDTH
        if not continues[at + 1]:
            for j in range(n):
                right[half, j, lane] = 1.0
            continue
        after, by = (at + 1) // WIDTH, (at + 1) % WIDTH
        largest = -math.inf
        for i in range(n):
            value, x = 0.0, left[after, i, by]
            for j in range(n):
                value += out[after, 1, i, j, by] * right[after, j, by]
            scale[i] = -math.inf
            if value > 0.0:
                scale[i] = math.log2(value) + exponents[after, 1, i, by]
            if x > 0.0:  # what is 0 on the way there does not count
                largest = max(largest, scale[i] + math.log2(x))
        for i in range(n):
            right[half, i, lane] = 2.0 ** min(scale[i] - largest, FARTHEST)


@kernel(fastmath=CONTRACT)
def _backward(transposed, low, stop, alpha, b, message, gamma, rho, states, others):
    """Fill gamma and rho for some steps from the message behind them (Eq. 6)."""
    n, m = len(states), len(others)
    after = load_all(alpha, stop * n * WIDTH, WIDTH, states)
    # Where alpha is 0, nothing keeps m from growing.
    behind = zero_without(load_all(message, 0, WIDTH, states), after)
    for step in range(stop - 1, low - 1, -1):
        to = (step - low) * n * WIDTH
        store_all(gamma, to, WIDTH, times_all(after, behind))
        after = load_all(alpha, step * n * WIDTH, WIDTH, states)
        power = unscale(sum_all(after))
        density = scale_all(load_all(b, step * m * WIDTH, WIDTH, others), power)
        ratio = times_all(widen(density, power, states), behind)
        store_all(rho, to, WIDTH, ratio)
        behind = times_matrix(ratio, transposed)
    store_all(message, 0, WIDTH, behind)


@kernel(fastmath=CONTRACT)
def _add_pairs(alpha, at, rho, j, count, sums, states, block, both):
    """Add products of alpha and some columns of rho (count, n_states) to sums."""
    n = len(states)
    total = load_all(sums, j * n * WIDTH, WIDTH, both)
    for s in range(0, count * n * WIDTH, n * WIDTH):
        x = load_all(alpha, at + s, WIDTH, states)
        y = load_all(rho, s + j * WIDTH, WIDTH, block)
        total = add_outer(total, x, y)
    store_all(sums, j * n * WIDTH, WIDTH, total)


@kernel(fastmath=CONTRACT)
def _add_features(
    gamma,
    columns,
    n_columns,
    first,
    second,
    j,
    half,
    low,
    stop,
    sums,
    states,
    block,
    both,
):
    """Add products of gamma and some features to sums; second is None for columns."""
    n = len(states)
    total = load_all(sums, j * n * WIDTH, WIDTH, both)
    for step in range(low, stop):
        at = _place(step, n_columns, half)
        x = load_all(gamma, (step - low) * n * WIDTH, WIDTH, states)
        y = gather_all(columns, at, first, j, block)
        if second is not None:
            y = times_all(y, gather_all(columns, at, second, j, block))
        total = add_outer(total, x, y)
    store_all(sums, j * n * WIDTH, WIDTH, total)


@kernel
def _collect(sums, singles, out):
    """Add sums in blocks, lanes together, to out."""
    n, width = out.shape
    j = at = 0
    while j < width:
        end = singles if j < singles else width
        size = 3 if end - j >= 3 else 1
        for i in range(n):
            for k in range(j, j + size):
                for lane in range(WIDTH):
                    out[i, k] += sums[at + lane]
                at += WIDTH
        j += size


@kernel
def add_up(
    rows, chain, events, n_steps, left, right, weight, room, work, shares, sums, states
):
    """Run over some groups and back (Eqs. 4-8); find log-likelihood and sums of each.

    Of halves are `left` and `right` (n_halves, n_states, WIDTH), the messages at their
    ends, and `weight` (n_halves, WIDTH); of groups `shares` (n_groups,) of the log-
    likelihood and `sums` (n_groups, n_sums), those of first states, of pairs of states
    and of features. See `_add_up`.
    """
    n = len(states)
    for g in range(len(shares)):
        start, pairs = sums[g, :n], sums[g, n : n + n * n].reshape(n, n)
        features = sums[g, n + n * n :]
        features = features.reshape(n, features.size // n)
        for half in (2 * g, 2 * g + 1):
            own, happens = _half(half, rows, events, n_steps)
            ends = left[half], right[half], weight[half]
            to = start, pairs, features
            shares[g] += _add_up(
                own, chain, happens, n_steps, *ends, room, work, *to, states
            )


@inner_kernel
def _add_up(
    rows,
    chain,
    events,
    n_steps,
    left,
    right,
    weight,
    room,
    work,
    sum_start,
    sum_pairs,
    sum_features,
    states,
):
    """Run over eight lanes and back (Eqs. 4-8), add to sums; return the log-likelihood.

    It is NaN where a row is impossible or r too unlikely, and sums can be where numbers
    are not enough.
    """
    columns, n_columns, first, second, singles, _, others, half = rows
    event_step, event_lane, event_ends, _ = events
    alpha, b, counts, top = room
    message, gamma, rho, pairs, sums = work
    both = states + states + states
    n, event = len(states), event_step.size - 1
    for i in range(n):
        for lane in range(WIDTH):
            alpha[i * WIDTH + lane] = left[i, lane]
    begin = stop = n_steps
    begin -= n_steps  # 0, but no literal, which would be compiled for
    value = _run(rows, chain, events, begin, stop, begin, begin, room, states)
    for lane in range(WIDTH):
        total, common = _lane_sum(alpha, n_steps, n, lane), 0.0
        seen = top[lane] <= HIGHEST if len(others) < n else top[lane] > NOWHERE
        if not (total > 0.0 and seen):
            return math.nan
        if weight[lane] > 0.0:
            share = math.log(total) + LOG_2 * _exponents(counts, lane, n_steps)
            if len(others) == n:
                share += top[lane]
            value += weight[lane] * share
        for i in range(n):
            common += alpha[(n_steps * n + i) * WIDTH + lane] * right[i, lane]
        for i in range(n):
            message[i * WIDTH + lane] = right[i, lane] * (weight[lane] / common)
    for i in range(pairs.size):
        pairs[i] = 0.0
    for i in range(sums.size):
        sums[i] = 0.0
    while stop > 0:
        low = max(stop - CHUNK, 0)
        if event >= 0:
            low = max(low, event_step[event])
        about = alpha, b, message, gamma, rho, states, others
        _backward(chain[2], low, stop, *about)
        while event >= 0 and event_step[event] == low:
            lane = event_lane[event]
            before = _lane_sum(alpha, low, n, lane)
            for i in range(n):
                at = i * WIDTH + lane
                sum_start[i] += gamma[at]
                rho[at] = 0.0
                message[at] = event_ends[event] / before
            event -= 1
        j, at = begin, low * n * WIDTH
        while j < n:
            if n - j >= 3:
                _add_pairs(alpha, at, rho, j, stop - low, pairs, states, THREE, both)
                j += 3
            else:
                _add_pairs(alpha, at, rho, j, stop - low, pairs, states, ONE, states)
                j += 1
        about, j = (gamma, columns, n_columns, first), begin
        to = half, low, stop, sums, states
        while j < singles:
            if singles - j >= 3:
                _add_features(*about, None, j, *to, THREE, both)
                j += 3
            else:
                _add_features(*about, None, j, *to, ONE, states)
                j += 1
        while j < first.size:
            if first.size - j >= 3:
                _add_features(*about, second, j, *to, THREE, both)
                j += 3
            else:
                _add_features(*about, second, j, *to, ONE, states)
                j += 1
        stop = low
    _collect(pairs, begin, sum_pairs)
    _collect(sums, singles, sum_features)
    return value
