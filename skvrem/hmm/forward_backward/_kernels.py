r"""Forward and backward recursions of hidden Markov models, 16 rows at a time.

The states' log-densities are linear in features F of a row, l_i = sum_p theta_ip F_p,
and with b_i = exp(l_i - max l), an initial distribution :math:`\delta`, transitions A,

    pred_t = alpha_{t-1} A (delta where a sequence starts)
    alpha_t = pred_t b_t / c_t,    c_t = sum_i pred_t,i b_t,i             (5)
    log p(y_t | y_1..y_{t-1}) = log c_t + max l
    gamma_t,i = alpha_t,i m_t,i,   m = 1 (the weight) where a sequence ends
    rho_t,j = gamma_t,j / pred_t,j,    m_{t-1,i} = sum_j A_ij rho_t,j     (6, 7)
    xi_t(i, j) = alpha_{t-1,i} A_ij rho_t,j                               (8)

with the numbers of Sidrow et al. (2023), so that the way back needs no densities. It is
linear in gamma: a wrong message from the right is corrected by the same kernel, run on
the message's error until that has died out.

Rows are laid out in ``LANES`` stretches side by side, one for each lane of a vector;
a *tile* is ``STEPS`` steps of every lane, and in a tile of n columns entry
``column * TILE + step * LANES + lane``. All arrays are flat. Where sequences start in a
lane stands in *events*, sorted by step: ``event_step``, ``event_lane``, and in
``event_weight`` the weight of the sequence that ends there. ``left`` and ``right``
(n_states * LANES) are the messages at both ends of the lanes.

Where theta has several rows for each state, in order, these are the parts of a mixture:
b_i is the sum over its `n_parts`, and sums of features are those of the parts.

Transitions may change from row to row, in two ways. Into the steps ``switch_step`` of
the lanes ``switch_lane``, sorted by step, lead those of a second matrix, ``other``.
Or every row has a matrix of its own: ``matrices`` (n_tiles, n_states * n_states, TILE).
``n_parts``, ``other`` and ``matrices`` are None where there is no such thing, and the
compiler leaves out what is about them.
"""

import numpy as np

from skvrem.utils._jit import CONTRACT, inner_kernel, kernel
from skvrem.utils._math import exp, log
from skvrem.utils._simd import WIDTH, add, fma, largest, load, mul, ratio, splat, store

LANES, STEPS = 16, 8
TILE = LANES * STEPS
# Log-densities below stand for minus infinity.
NOWHERE = -1e90
# Products below may have lost digits.
TINY = 1e-290
# Messages below are as good as 0 where probabilities of the chain are above 1e-145.
SMALLEST = 1e-160
U_TILE = np.uint64(TILE)


@kernel
def lay_out(rows, bounds, out):
    """Put rows bounds[lane]..bounds[lane + 1] into lanes, and zeros behind them."""
    n, shortest = rows.shape[1], bounds[1] - bounds[0]
    for lane in range(1, LANES):
        shortest = min(shortest, bounds[lane + 1] - bounds[lane])
    for step in range(out.size // (n * LANES)):
        to = step // STEPS * (n * TILE) + step % STEPS * LANES
        if step < shortest:  # almost always
            for j in range(n):
                for lane in range(LANES):
                    out[to + j * TILE + lane] = rows[bounds[lane] + step, j]
            continue
        for lane in range(LANES):
            row = bounds[lane] + step
            there = row < bounds[lane + 1]
            for j in range(n):
                out[to + j * TILE + lane] = rows[row, j] if there else 0.0


@inner_kernel(apart=False)
def _features(columns, at, first, second, out):
    """Products of two columns; a column -1 is 1."""
    one = splat(1.0)
    for p in range(first.size):
        a, b = at + first[p] * TILE, at + second[p] * TILE
        for t in range(0, TILE, WIDTH):
            value = one if first[p] < 0 else load(columns, a + t)
            if second[p] >= 0:
                value = mul(value, load(columns, b + t))
            store(out, p * TILE + t, value)


@inner_kernel
def _matmul(matrix, n, m, source, at, stride, out, to, out_stride, width):
    """Out (n, width) = matrix (n, m) @ source (m, width), rows strides apart."""
    for t in range(0, width, LANES):
        for k in range(n):
            a = b = splat(0.0)
            for p in range(m):
                x, by = matrix[k * m + p], at + p * stride + t
                a = fma(x, load(source, by), a)
                b = fma(x, load(source, by + WIDTH), b)
            by = to + k * out_stride + t
            store(out, by, a)
            store(out, by + WIDTH, b)


@inner_kernel(apart=False)
def _outer(x, n, y, m, out):
    """Out (n, m, WIDTH) += x (n, TILE) y (m, TILE), to be summed over the last axis."""
    for i in range(0, n, 2):
        i1 = min(i + 1, n - 1)
        at, by = i * m * WIDTH, i1 * m * WIDTH
        for j in range(0, m, 2):
            j1 = min(j + 1, m - 1)
            a0, a1 = load(out, at + j * WIDTH), load(out, at + j1 * WIDTH)
            b0, b1 = load(out, by + j * WIDTH), load(out, by + j1 * WIDTH)
            for t in range(0, TILE, WIDTH):
                u, v = load(x, i * TILE + t), load(x, i1 * TILE + t)
                p, q = load(y, j * TILE + t), load(y, j1 * TILE + t)
                a0, a1 = fma(u, p, a0), fma(u, q, a1)
                b0, b1 = fma(v, p, b0), fma(v, q, b1)
            store(out, at + j * WIDTH, a0)
            store(out, at + j1 * WIDTH, a1)
            store(out, by + j * WIDTH, b0)
            store(out, by + j1 * WIDTH, b1)


@inner_kernel(apart=False)
def _mix(matrices, base, n, source, at, stride, out, to, out_stride, width):
    """Out (n, width) = source (n, width) times a matrix (n, n) a column."""
    for j in range(n):
        for t in range(0, width, WIDTH):
            a = splat(0.0)
            for i in range(n):
                x = load(source, at + i * stride + t)
                a = fma(x, load(matrices, base + (i * n + j) * TILE + t), a)
            store(out, to + j * out_stride + t, a)


@inner_kernel(apart=False)
def _mix_back(matrices, base, n, source, at, out):
    """Out (n, LANES) = a matrix (n, n) a column times source (n, TILE)."""
    for i in range(n):
        for t in range(0, LANES, WIDTH):
            a = splat(0.0)
            for j in range(n):
                x = load(source, at + j * TILE + t)
                a = fma(x, load(matrices, base + (i * n + j) * TILE + t), a)
            store(out, i * LANES + t, a)


@inner_kernel(apart=False)
def _switch(other, n, source, at, stride, out, to, out_stride):
    """One column of out = source times the other matrix."""
    for j in range(n):
        total = 0.0
        for i in range(n):
            total += source[at + i * stride] * other[i * n + j]
        out[to + j * out_stride] = total


@inner_kernel(apart=False)
def _largest(joint, at, n, top):
    """Top (TILE) = the largest of n rows."""
    for t in range(0, TILE, WIDTH):
        value = load(joint, at + t)
        for k in range(1, n):
            value = largest(load(joint, at + k * TILE + t), value)
        store(top, t, value)


@inner_kernel(apart=False, fastmath=CONTRACT)
def _relative(joint, at, n, top):
    """Turn l (n, TILE) into b = exp(l - max l) in place; leave max l in top."""
    _largest(joint, at, n, top)
    for k in range(n):
        to = np.uint64(at + k * TILE)
        for t in range(U_TILE):
            joint[to + t] = exp(joint[to + t] - top[t])


@inner_kernel(apart=False)
def _collapse(parts, n, n_parts, out, at):
    """Out (n, TILE) = sums over n_parts rows of parts each."""
    for k in range(n):
        for t in range(0, TILE, WIDTH):
            total = splat(0.0)
            for m in range(n_parts):
                total = add(total, load(parts, (k * n_parts + m) * TILE + t))
            store(out, at + k * TILE + t, total)


@inner_kernel(apart=False)
def _share_out(gamma, n, n_parts, parts):
    """Turn parts into their shares of gamma (n, TILE), n_parts rows for each of n."""
    for k in range(n):
        for t in range(0, TILE, WIDTH):
            total = splat(0.0)
            for m in range(n_parts):
                total = add(total, load(parts, (k * n_parts + m) * TILE + t))
            each = ratio(load(gamma, k * TILE + t), total)
            for m in range(n_parts):
                at = (k * n_parts + m) * TILE + t
                store(parts, at, mul(load(parts, at), each))


@inner_kernel(apart=False, fastmath=CONTRACT)
def _log_c(c, size, top, at):
    """Add log c to top; of c = 0 some number."""
    for t in range(np.uint64(size)):
        top[np.uint64(at) + t] += log(c[t])


@inner_kernel(apart=False)
def _shares(c, top, products, shares, at):
    """Share of a tile in every lane, with one logarithm; false where that is wrong.

    It is where a product of c is too small, and where a row's density is 0.
    """
    for t in range(0, LANES, WIDTH):
        product, total = load(c, t), load(top, t)
        for s in range(1, STEPS):
            product = mul(product, load(c, s * LANES + t))
            total = add(total, load(top, s * LANES + t))
        store(products, t, product)
        store(shares, at + t, total)
    for t in range(LANES):
        if not (products[t] > TINY and shares[at + t] > NOWHERE):
            return False
    _log_c(products, LANES, shares, at)
    return True


@inner_kernel(apart=False)
def _row_shares(c, top, shares, at):
    """Turn top into the rows' shares, and sum them."""
    _log_c(c, TILE, top, 0)
    for t in range(0, LANES, WIDTH):
        total = load(top, t)
        for s in range(1, STEPS):
            total = add(total, load(top, s * LANES + t))
        store(shares, at + t, total)


@inner_kernel(apart=False)
def _find_impossible(c, top, first, sizes, impossible):
    """Note step and lane of the first row, padding left out, of density 0."""
    for t in range(TILE):
        step, lane = first + t // LANES, t % LANES
        none = not c[t] > 0.0 or top[t] < NOWHERE
        if none and impossible[0] < 0 and step < sizes[lane]:
            impossible[0], impossible[1] = step, lane


@inner_kernel
def _step_forward(n, pred, alpha, at, c, to, last):
    """Alpha (n, LANES), b before, becomes pred b / c, and `last` the same."""
    x = y = splat(0.0)
    for j in range(n):
        by, here = j * LANES, at + j * TILE
        u = mul(load(pred, by), load(alpha, here))
        v = mul(load(pred, by + WIDTH), load(alpha, here + WIDTH))
        store(last, by, u)
        store(last, by + WIDTH, v)
        x, y = add(x, u), add(y, v)
    store(c, to, x)
    store(c, to + WIDTH, y)
    x, y = ratio(splat(1.0), x), ratio(splat(1.0), y)
    for j in range(n):
        by, here = j * LANES, at + j * TILE
        u, v = mul(load(last, by), x), mul(load(last, by + WIDTH), y)
        store(last, by, u)
        store(last, by + WIDTH, v)
        store(alpha, here, u)
        store(alpha, here + WIDTH, v)


@inner_kernel(apart=False)
def _next_lane(messages, g, at, by):
    """Entry `at` of a group (n_states, LANES), of the lane `by` further on."""
    lane = at % LANES + by
    if 0 <= lane < LANES:
        return messages[g, at + by]
    return messages[g + by, at + by - by * LANES]


@kernel
def hand_on(ends, continues, carried, left, changes):
    """Replace the messages to the left of lanes by those at the ends of others.

    Of groups (n_groups, n_states * LANES). They are 0 where ``continues`` (n_groups,
    LANES) is false, and ``carried``, where it is not None, in the first lane of all.
    ``changes`` (n_groups) are the largest, relative to the messages.
    """
    for g in range(len(ends)):
        changes[g] = 0.0
        for at in range(ends.shape[1]):
            first = g == 0 and at % LANES == 0
            if continues[g, at % LANES]:
                value = _next_lane(ends, g, at, -1)
            elif first and carried is not None:
                value = carried[at // LANES]
            else:
                left[g, at] = 0.0  # a sequence begins there
                continue
            change = abs(value - left[g, at]) / max(value, SMALLEST)
            changes[g] = max(changes[g], change)
            left[g, at] = value


@kernel
def hand_back(heads, goes_on, known, errors, largest):
    """Find by how much messages to the right of lanes are not the heads of the next.

    Of groups (n_groups, n_states * LANES). ``errors`` are those of what is ``known``,
    which is put right; both stay where ``goes_on`` (n_groups, LANES) is false, errors
    at 0. ``largest`` (n_groups) are the largest of these.
    """
    for g in range(len(heads)):
        largest[g] = 0.0
        for at in range(heads.shape[1]):
            errors[g, at] = 0.0
            if goes_on[g, at % LANES]:
                value = _next_lane(heads, g, at, 1)
                errors[g, at] = value - known[g, at]
                known[g, at] = value
                largest[g] = max(largest[g], abs(errors[g, at]))


@kernel
def lane_shares(shares, event_step, event_lane, before, total):
    """Sum tiles' shares (n_tiles * LANES) to those of lanes, which `total` (LANES) is.

    Of tiles before an event the sum is added to what is in `before` (n_events).
    """
    event, total[:] = 0, 0.0
    for number in range(shares.size // LANES):
        while event < event_step.size and event_step[event] < (number + 1) * STEPS:
            before[event] += total[event_lane[event]]
            event += 1
        for lane in range(LANES):
            total[lane] += shares[number * LANES + lane]


@kernel
def forward(
    columns,
    n_columns,
    first,
    second,
    theta,
    start,
    transposed,
    other,
    matrices,
    n_parts,
    event_step,
    event_lane,
    switch_step,
    switch_lane,
    left,
    n_tiles,
    tolerance,
    alpha,
    scratch,
    sizes,
    shares,
    before,
    ends,
    impossible,
    rows,
):
    """Run forward from `left` over the tiles (Eq. 5); return how many were needed.

    With a tolerance, ``alpha`` holds an earlier run, and the run ends where it differs
    by no more, relatively: what is small now can be all there is later. ``sizes``
    (LANES) are the lanes' rows without padding, ``shares`` (n_tiles * LANES) the tiles'
    shares of the log-likelihood (Eq. 4), ``before`` (n_events) those of a tile before
    an event, ``ends`` the last alpha, ``impossible`` a step and lane where the density
    is 0, and ``rows``, where not empty, the rows' own shares.
    """
    n, n_features = start.size, first.size
    wide = n if n_parts is None else n * n_parts
    cut, size = n_features * TILE, n * LANES
    features, rest = scratch[:cut], scratch[cut:]
    top, rest = rest[:TILE], rest[TILE:]
    c, rest = rest[:TILE], rest[TILE:]
    pred, rest = rest[:size], rest[size:]
    last, rest = rest[:size], rest[size:]
    earlier, parts = rest[:size], rest[size:]
    for i in range(size):
        last[i] = left[i]
    event = switch = 0
    for number in range(n_tiles):
        at = number * n * TILE
        if tolerance > 0.0:
            for i in range(size):
                end = at + (i // LANES + 1) * TILE - LANES
                earlier[i] = alpha[end + i % LANES]
        _features(columns, number * n_columns * TILE, first, second, features)
        if n_parts is None:
            _matmul(theta, n, n_features, features, 0, TILE, alpha, at, TILE, TILE)
            _relative(alpha, at, n, top)
        else:
            _matmul(theta, wide, n_features, features, 0, TILE, parts, 0, TILE, TILE)
            _relative(parts, 0, wide, top)
            _collapse(parts, n, n_parts, alpha, at)
        begun = event
        for s in range(STEPS):
            step, here = number * STEPS + s, s * LANES
            if matrices is not None:
                by = at * n + here
                _mix(matrices, by, n, last, 0, LANES, pred, 0, LANES, LANES)
            else:
                _matmul(transposed, n, n, last, 0, LANES, pred, 0, LANES, LANES)
            if other is not None:
                while switch < switch_step.size and switch_step[switch] == step:
                    lane = switch_lane[switch]
                    _switch(other, n, last, lane, LANES, pred, lane, LANES)
                    switch += 1
            while event < event_step.size and event_step[event] == step:
                for j in range(n):
                    pred[j * LANES + event_lane[event]] = start[j]
                event += 1
            _step_forward(n, pred, alpha, at + here, c, here, last)
        done = _shares(c, top, pred, shares, number * LANES)
        if not done or begun < event or rows.size:
            _row_shares(c, top, shares, number * LANES)
            if impossible[0] < 0:
                _find_impossible(c, top, number * STEPS, sizes, impossible)
        while begun < event:
            # What the lane has had in this tile before the event.
            before[begun] = 0.0
            for s in range(event_step[begun] - number * STEPS):
                before[begun] += top[s * LANES + event_lane[begun]]
            begun += 1
        if rows.size:
            for t in range(0, TILE, WIDTH):
                store(rows, number * TILE + t, load(top, t))
        if tolerance > 0.0:
            same = True
            for i in range(size):
                most = tolerance * max(earlier[i], SMALLEST)
                same &= abs(last[i] - earlier[i]) <= most
            if same:
                return number + 1
    for i in range(size):
        ends[i] = last[i]
    return n_tiles


@inner_kernel(apart=False)
def _step_backward(n, alpha, at, message, gamma, pred, rho, to):
    """Gamma = alpha m and rho = gamma / pred, 0 where pred is."""
    for j in range(n):
        for t in range(0, LANES, WIDTH):
            by = to + j * TILE + t
            value = mul(load(alpha, at + j * TILE + t), load(message, j * LANES + t))
            store(gamma, by, value)
            store(rho, by, ratio(value, load(pred, by)))


@inner_kernel(apart=False)
def _switch_back(other, n, previous, rho, at, message, lane, sums):
    """The message of a step that the other matrix leads to; its rho becomes 0."""
    for i in range(n):
        total = 0.0
        for j in range(n):
            total += other[i * n + j] * rho[at + j * TILE]
            sums[i * n + j] += previous[at + i * TILE] * rho[at + j * TILE]
        message[i * LANES + lane] = total
    for j in range(n):
        rho[at + j * TILE] = 0.0


@kernel
def backward(
    columns,
    n_columns,
    first,
    second,
    theta,
    start,
    transposed,
    other,
    matrices,
    n_parts,
    event_step,
    event_lane,
    switch_step,
    switch_lane,
    left,
    n_tiles,
    tolerance,
    alpha,
    scratch,
    transitions,
    event_weight,
    right,
    sum_start,
    sum_pairs,
    sum_others,
    sum_features,
    heads,
    rows,
    ratios,
):
    """Run backward from `right` over the tiles (Eq. 6) and add to the sums.

    Ends early where the posteriors (Eqs. 7 and 8) are below the tolerance.
    ``sum_start`` (n_states) are posteriors of first rows, ``sum_pairs`` (n_states,
    n_states) sums of alpha rho, ``sum_others`` those where the other matrix leads,
    ``sum_features`` (n_states, n_features) of gamma F. ``heads`` is the message to the
    left of the lanes, 0 where the run ended before. gamma is added to ``rows`` and rho
    to ``ratios`` (n_tiles * n_states * TILE) where they are not empty.
    """
    n, n_features = start.size, first.size
    wide = n if n_parts is None else n * n_parts
    cut, tile, size = n_features * TILE, n * TILE, n * LANES
    features, rest = scratch[:cut], scratch[cut:]
    gamma, rest = rest[:tile], rest[tile:]
    rho, rest = rest[:tile], rest[tile:]
    previous, rest = rest[:tile], rest[tile:]
    pred, rest = rest[:tile], rest[tile:]
    message, rest = rest[:size], rest[size:]
    top, parts = rest[:TILE], rest[TILE:]
    for i in range(n * LANES):
        message[i] = right[i]
        heads[i] = 0.0
    event, switch = event_step.size - 1, switch_step.size - 1
    # Events after the first tiles that are left out count for nothing here.
    while event >= 0 and event_step[event] >= n_tiles * STEPS:
        event -= 1
    while switch >= 0 and switch_step[switch] >= n_tiles * STEPS:
        switch -= 1
    for number in range(n_tiles - 1, -1, -1):
        at = number * n * TILE
        for k in range(n):
            for t in range(0, LANES, WIDTH):
                if number:
                    value = load(alpha, at - (n - k - 1) * TILE - LANES + t)
                else:
                    value = load(left, k * LANES + t)
                store(previous, k * TILE + t, value)
            for t in range(0, TILE - LANES, WIDTH):
                value = load(alpha, at + k * TILE + t)
                store(previous, k * TILE + LANES + t, value)
        if matrices is not None:
            _mix(matrices, at * n, n, previous, 0, TILE, pred, 0, TILE, TILE)
        else:
            _matmul(transposed, n, n, previous, 0, TILE, pred, 0, TILE, TILE)
        if other is not None:
            at_switch = switch
            while at_switch >= 0 and switch_step[at_switch] >= number * STEPS:
                t = (switch_step[at_switch] - number * STEPS) * LANES
                t += switch_lane[at_switch]
                _switch(other, n, previous, t, TILE, pred, t, TILE)
                at_switch -= 1
        for s in range(STEPS - 1, -1, -1):
            _step_backward(
                n, alpha, at + s * LANES, message, gamma, pred, rho, s * LANES
            )
            step = number * STEPS + s
            if matrices is not None:
                _mix_back(matrices, at * n + s * LANES, n, rho, s * LANES, message)
            else:
                to = s * LANES
                _matmul(transitions, n, n, rho, to, TILE, message, 0, LANES, LANES)
            if other is not None:
                while switch >= 0 and switch_step[switch] == step:
                    lane = switch_lane[switch]
                    t = s * LANES + lane
                    _switch_back(other, n, previous, rho, t, message, lane, sum_others)
                    switch -= 1
            while event >= 0 and event_step[event] == step:
                lane = event_lane[event]
                for k in range(n):
                    i = k * TILE + s * LANES + lane
                    sum_start[k] += gamma[i]
                    rho[i] = 0.0
                    message[k * LANES + lane] = event_weight[event]
                event -= 1
        _features(columns, number * n_columns * TILE, first, second, features)
        if n_parts is None:
            _outer(gamma, n, features, n_features, sum_features)
        else:
            _matmul(theta, wide, n_features, features, 0, TILE, parts, 0, TILE, TILE)
            _relative(parts, 0, wide, top)
            _share_out(gamma, n, n_parts, parts)
            _outer(parts, wide, features, n_features, sum_features)
        _outer(previous, n, rho, n, sum_pairs)
        if rows.size:
            for i in range(n * TILE):
                rows[at + i] += gamma[i]
        if ratios.size:
            for i in range(n * TILE):
                ratios[at + i] += rho[i]
        if tolerance > 0.0:
            largest = 0.0
            for k in range(n):
                for t in range(LANES):
                    largest = max(largest, abs(gamma[k * TILE + t]))
            if largest <= tolerance:
                return number
    for i in range(n * LANES):
        heads[i] = message[i]
    return 0
