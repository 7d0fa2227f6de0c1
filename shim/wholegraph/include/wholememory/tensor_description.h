/*
 * tensor_description.h: types of elements, and shapes. Sizes, strides and offsets are in elements.
 */
#ifndef WHOLEMEMORY_TENSOR_DESCRIPTION_H
#define WHOLEMEMORY_TENSOR_DESCRIPTION_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Types of elements. */
typedef enum wholememory_dtype_t {
  WHOLEMEMORY_DT_UNKNOWN = 0,
  WHOLEMEMORY_DT_FLOAT = 1,  /* 32 bits */
  WHOLEMEMORY_DT_HALF = 2,   /* IEEE, 16 bits */
  WHOLEMEMORY_DT_DOUBLE = 3, /* 64 bits */
  WHOLEMEMORY_DT_BF16 = 4,   /* the upper half of a FLOAT */
  WHOLEMEMORY_DT_INT = 5,    /* 32 bits */
  WHOLEMEMORY_DT_INT64 = 6,
  WHOLEMEMORY_DT_INT16 = 7,
  WHOLEMEMORY_DT_INT8 = 8,
  WHOLEMEMORY_DT_COUNT = 9 /* how many there are, with UNKNOWN */
} wholememory_dtype_t;

/* Most dimensions of a tensor. */
#define WHOLEMEMORY_MAX_TENSOR_DIM (8)

/* One dimension without gaps. */
typedef struct wholememory_array_description_t {
  int64_t size;
  int64_t storage_offset; /* elements before the first */
  wholememory_dtype_t dtype;
} wholememory_array_description_t;

/* Rows without gaps inside. */
typedef struct wholememory_matrix_description_t {
  int64_t sizes[2];       /* rows, columns */
  int64_t stride;         /* from a row to the next one */
  int64_t storage_offset; /* elements before the first */
  wholememory_dtype_t dtype;
} wholememory_matrix_description_t;

/* Up to 8 dimensions. */
typedef struct wholememory_tensor_description_t {
  int64_t sizes[WHOLEMEMORY_MAX_TENSOR_DIM];
  int64_t strides[WHOLEMEMORY_MAX_TENSOR_DIM];
  int64_t storage_offset; /* elements before the first */
  int dim;                /* how many dimensions there are */
  wholememory_dtype_t dtype;
} wholememory_tensor_description_t;

/* Functions: written by `cargo xtask wholememory` from shim/wholememory/src/capi. Do not edit. */

/* Returns the bytes of an element. */
size_t wholememory_dtype_get_element_size(wholememory_dtype_t dtype);

/* Returns whether a type is a floating-point number. */
bool wholememory_dtype_is_floating_number(wholememory_dtype_t dtype);

/* Returns whether a type is an integer. */
bool wholememory_dtype_is_integer_number(wholememory_dtype_t dtype);

/* Returns the description of an array: `size` elements, of which the first is `storage_offset` elements behind
 * the memory's beginning. */
wholememory_array_description_t wholememory_create_array_desc(
    int64_t size, int64_t storage_offset, wholememory_dtype_t dtype);

/* Returns the description of a matrix: `sizes` are the numbers of rows and columns, `stride` the elements from a
 * row to the next one. */
wholememory_matrix_description_t wholememory_create_matrix_desc(
    int64_t* sizes, int64_t stride, int64_t storage_offset, wholememory_dtype_t dtype);

/* Writes a tensor without dimensions and type; all sizes and strides are 1. */
void wholememory_initialize_tensor_desc(wholememory_tensor_description_t* tensor);

/* Writes an array as a matrix of one column. */
void wholememory_copy_array_desc_to_matrix(
    wholememory_matrix_description_t* to, wholememory_array_description_t* from);

/* Writes an array as a tensor of one dimension. */
void wholememory_copy_array_desc_to_tensor(
    wholememory_tensor_description_t* to, wholememory_array_description_t* from);

/* Writes a matrix as a tensor of two dimensions. */
void wholememory_copy_matrix_desc_to_tensor(
    wholememory_tensor_description_t* to, wholememory_matrix_description_t* from);

/* Writes a tensor as an array, if it has at most one dimension and no gaps. */
bool wholememory_convert_tensor_desc_to_array(
    wholememory_array_description_t* to, wholememory_tensor_description_t* from);

/* Writes a tensor as a matrix, if it has at most two dimensions and no gaps in a row. */
bool wholememory_convert_tensor_desc_to_matrix(
    wholememory_matrix_description_t* to, wholememory_tensor_description_t* from);

/* Returns the number of elements. */
int64_t wholememory_get_memory_element_count_from_array(wholememory_array_description_t* array);

/* Returns the bytes of the elements. */
int64_t wholememory_get_memory_size_from_array(wholememory_array_description_t* array);

/* Returns the number of elements, with the gaps between rows: rows times stride. */
int64_t wholememory_get_memory_element_count_from_matrix(wholememory_matrix_description_t* matrix);

/* Returns the bytes of these elements. */
int64_t wholememory_get_memory_size_from_matrix(wholememory_matrix_description_t* matrix);

/* Returns the number of elements, with gaps: the first size times the first stride, and 1 without dimensions. */
int64_t wholememory_get_memory_element_count_from_tensor(wholememory_tensor_description_t* tensor);

/* Returns the bytes of these elements. */
int64_t wholememory_get_memory_size_from_tensor(wholememory_tensor_description_t* tensor);

/* Removes dimension `dim`, whose size is 1. */
bool wholememory_squeeze_tensor(wholememory_tensor_description_t* tensor, int dim);

/* Puts a dimension of size 1 before dimension `dim`, or behind the last one. */
bool wholememory_unsqueeze_tensor(wholememory_tensor_description_t* tensor, int dim);

/* End of the functions. */

#ifdef __cplusplus
}
#endif

#endif
