// The replay on an OpenCL device: moving items, and sum trees (see tree.py for their layout and rules).
// Sums must be rounded as on the host, one addition after the other.
#pragma OPENCL FP_CONTRACT OFF

#define MOVES(WORD, NAME)                                                                                        \
    __kernel void put_##NAME(__global WORD *array, __global const int *entry, __global const WORD *values) {     \
        size_t word = get_global_id(0), width = get_global_size(0), i = get_global_id(1);                        \
        array[(size_t)entry[i] * width + word] = values[i * width + word];                                       \
    }                                                                                                            \
    __kernel void take_##NAME(__global const WORD *array, __global const int *entry, __global WORD *values) {    \
        size_t word = get_global_id(0), width = get_global_size(0), i = get_global_id(1);                        \
        values[i * width + word] = array[(size_t)entry[i] * width + word];                                       \
    }

MOVES(uint, words)
MOVES(uchar, bytes)

float sum_children(__global const float *children, int shift) {
    float total = children[0];
    for (int child = 1; child < 1 << shift; child++)
        total += children[child];
    return total;
}

// entries: columns, leaves and the bits of values, `count` of each. One work-group, level after level.
__kernel void update(__global float *tree, __global const int *offsets, int depth, int shift, int nodes,
                     __global const int *entries, int count) {
    __global const int *column = entries, *leaf = entries + count, *value = entries + 2 * count;
    for (int i = get_local_id(0); i < count; i += get_local_size(0))
        tree[(size_t)column[i] * nodes + offsets[depth] + leaf[i]] = as_float(value[i]);
    for (int level = depth - 1; level >= 0; level--) {
        barrier(CLK_GLOBAL_MEM_FENCE);
        for (int i = get_local_id(0); i < count; i += get_local_size(0)) {
            __global float *mine = tree + (size_t)column[i] * nodes;
            int node = leaf[i] >> (shift * (depth - level));
            mine[offsets[level] + node] = sum_children(mine + offsets[level + 1] + (node << shift), shift);
        }
    }
}

// The tree above the roots of all columns. One work-group.
__kernel void join(__global float *top, __global const int *offsets, __global const int *counts, int depth, int shift,
                   __global const float *tree, int nodes) {
    for (int i = get_local_id(0); i < counts[depth]; i += get_local_size(0))
        top[offsets[depth] + i] = tree[(size_t)i * nodes];
    for (int level = depth - 1; level >= 0; level--) {
        barrier(CLK_GLOBAL_MEM_FENCE);
        for (int i = get_local_id(0); i < counts[level]; i += get_local_size(0))
            top[offsets[level] + i] = sum_children(top + offsets[level + 1] + (i << shift), shift);
    }
}

int descend(__global const float *tree, __global const int *offsets, int depth, int shift, float *target) {
    int node = 0;
    for (int level = 0; level < depth; level++) {
        __global const float *children = tree + offsets[level + 1] + (node << shift);
        float before = 0, last_before = 0;
        int last = 0;
        for (int child = 0; child < 1 << shift; child++) {
            float each = children[child];
            if (each > 0) {
                last = child;
                last_before = before;
            }
            before += each;
            if (*target < before)
                break;
        }
        *target -= last_before;
        node = (node << shift) + last;
    }
    return node;
}

// found: columns, leaves and the bits of values, one of each for every share.
__kernel void find(__global const float *top, __global const int *top_offsets, int top_depth,
                   __global const float *tree, __global const int *offsets, int depth, int shift, int nodes,
                   __global const float *share, __global int *found) {
    size_t i = get_global_id(0), count = get_global_size(0);
    float target = fmin(share[i] * top[0], top[0]);
    int column = descend(top, top_offsets, top_depth, shift, &target);
    __global const float *mine = tree + (size_t)column * nodes;
    int leaf = descend(mine, offsets, depth, shift, &target);
    found[i] = column;
    found[count + i] = leaf;
    found[2 * count + i] = as_int(mine[offsets[depth] + leaf]);
}
