/* The loops over the records of v2 record batches, for record_codec.py.

   Optional: without this module, numpy_decoder.py and numpy_encoder.py do the same with numpy and pyarrow. Both
   are tested against each other. Every position is checked before it is read or written, also in
   Arrow's own offsets: the bytes come from strangers. The layout of a record is that of Kafka's
   DefaultRecord. Buffers are read without the interpreter's lock. A buffer that another thread
   changes meanwhile gives wrong records, and never an access outside of it. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Arrow's buffers are written in little-endian order"
#endif

#define MAX_BYTES INT32_MAX

/* The faults of a record; record_fault.py has the same numbers. */
enum {
    OK = 0,
    ENDS_EARLY = 1,      /* a field or a length goes past the end of its record or batch */
    LONG_VARINT = 2,     /* a varint has no end within its largest size */
    WRONG_SIZE = 3,      /* the fields end before the record does */
    HEADER_COUNT = 4,    /* the number of headers is negative, or larger than the record */
    HEADER_NAME = 5,     /* a header's name has a negative length */
    LEFT_OVER = 6,       /* bytes follow the last record */
    TIME_RANGE = 7,      /* a timestamp does not fit microseconds in 64 bits */
    TOO_LARGE = 8,       /* the records of the batches together exceed 2 GiB */
};

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Cursor;

static inline int read_varlong(Cursor *cursor, int64_t *value, int max_bytes)
{
    uint64_t bits = 0;
    for (int n = 0; n < max_bytes; n++) {
        if (cursor->at >= cursor->end)
            return ENDS_EARLY;
        uint8_t byte = *cursor->at++;
        bits |= (uint64_t)(byte & 0x7f) << (7 * n);
        if (byte < 0x80) {
            if (max_bytes == 5)
                bits &= 0xffffffffu;
            *value = (int64_t)((bits >> 1) ^ (0 - (bits & 1)));
            return OK;
        }
    }
    return LONG_VARINT;
}

static inline int read_varint(Cursor *cursor, int64_t *value)
{
    if (cursor->at < cursor->end && *cursor->at < 0x80) {
        uint8_t byte = *cursor->at++;
        *value = (int64_t)(byte >> 1) ^ -(int64_t)(byte & 1);
        return OK;
    }
    return read_varlong(cursor, value, 5);
}

/* Reads a length and skips that many bytes; a negative length is a null. */
static inline int read_bytes(Cursor *cursor, const uint8_t **start, int64_t *length)
{
    int fault = read_varint(cursor, length);
    if (fault)
        return fault;
    *start = cursor->at;
    if (*length > cursor->end - cursor->at)
        return ENDS_EARLY;
    if (*length > 0)
        cursor->at += *length;
    return OK;
}

/* One column of byte strings that is filled. `sources` are the positions of the bytes. */
typedef struct {
    PyObject *offsets, *validity, *data;
    int32_t *ends;
    uint8_t *valid;
    const uint8_t **sources;
    int64_t nulls;
    int64_t total;
} Column;

static int column_init(Column *column, Py_ssize_t rows)
{
    memset(column, 0, sizeof *column);
    column->offsets = PyBytes_FromStringAndSize(NULL, (rows + 1) * 4);
    column->validity = PyBytes_FromStringAndSize(NULL, (rows + 7) / 8);
    column->sources = PyMem_Malloc((rows ? rows : 1) * sizeof *column->sources);
    if (!column->offsets || !column->validity || !column->sources) {
        if (!column->sources)
            PyErr_NoMemory();
        return -1;
    }
    column->ends = (int32_t *)PyBytes_AsString(column->offsets);
    column->ends[0] = 0;
    column->valid = (uint8_t *)PyBytes_AsString(column->validity);
    memset(column->valid, 0xff, (rows + 7) / 8);
    return 0;
}

static void column_clear(Column *column)
{
    Py_XDECREF(column->offsets);
    Py_XDECREF(column->validity);
    Py_XDECREF(column->data);
    PyMem_Free(column->sources);
}

static inline int column_add(Column *column, int64_t row, const uint8_t *source, int64_t length)
{
    column->sources[row] = source;
    if (length < 0) {
        column->valid[row >> 3] &= (uint8_t)~(1u << (row & 7));
        column->nulls++;
        length = 0;
    }
    column->total += length;
    if (column->total > MAX_BYTES)
        return TOO_LARGE;
    column->ends[row + 1] = (int32_t)column->total;
    return OK;
}

static int column_allocate(Column *column)
{
    column->data = PyBytes_FromStringAndSize(NULL, column->total);
    return column->data ? 0 : -1;
}

static void column_copy(Column *column, int64_t rows)
{
    char *data = PyBytes_AsString(column->data);
    for (int64_t row = 0; row < rows; row++) {
        int32_t start = column->ends[row];
        memcpy(data + start, column->sources[row], (size_t)(column->ends[row + 1] - start));
    }
}

/* (offsets, validity or None without nulls, data) */
static PyObject *column_result(Column *column)
{
    return Py_BuildValue("(OOO)", column->offsets, column->nulls ? column->validity : Py_None,
                         column->data);
}

typedef struct {
    Py_buffer data;
    int is_held;
    int64_t records;
    int64_t base_timestamp_ms;
} Part;

typedef struct {
    Part *parts;
    Py_ssize_t count;
    int64_t rows;
} Parts;

static void parts_clear(Parts *parts)
{
    for (Py_ssize_t n = 0; n < parts->count; n++)
        if (parts->parts[n].is_held)
            PyBuffer_Release(&parts->parts[n].data);
    PyMem_Free(parts->parts);
}

static int parts_init(Parts *parts, PyObject *list)
{
    memset(parts, 0, sizeof *parts);
    parts->count = PyList_Size(list);
    if (parts->count < 0)
        return -1;
    parts->parts = PyMem_Calloc(parts->count ? parts->count : 1, sizeof(Part));
    if (!parts->parts) {
        parts->count = 0;
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t n = 0; n < parts->count; n++) {
        Part *part = &parts->parts[n];
        long long records, base;
        PyObject *item = PyList_GetItem(list, n);
        if (!item || !PyArg_ParseTuple(item, "y*LL", &part->data, &records, &base))
            return -1;
        part->is_held = 1;
        /* A record has 7 bytes or more: nothing is allocated for records that cannot be there. */
        if (records < 0 || records > part->data.len / 7) {
            PyErr_SetString(PyExc_OverflowError, "more records than bytes");
            return -1;
        }
        part->records = records;
        part->base_timestamp_ms = base;
        parts->rows += records;
    }
    if (parts->rows > MAX_BYTES / 8) {
        PyErr_SetString(PyExc_OverflowError, "too many records");
        return -1;
    }
    return 0;
}

static int read_headers(Cursor *record, int64_t count, Column *names, Column *values, int64_t *row)
{
    const uint8_t *start;
    int64_t length;
    for (int64_t n = 0; n < count; n++) {
        int fault = read_bytes(record, &start, &length);
        if (!fault && length < 0)
            fault = HEADER_NAME;
        if (!fault && names)
            fault = column_add(names, *row, start, length);
        if (!fault)
            fault = read_bytes(record, &start, &length);
        if (!fault && values)
            fault = column_add(values, *row, start, length);
        if (fault)
            return fault;
        (*row)++;
    }
    return OK;
}

static const char decode_doc[] =
    "decode(parts)\n--\n\nReturn the columns of records; record_codec.py describes them.";

static PyObject *decode(PyObject *module, PyObject *list)
{
    (void)module;
    Parts parts;
    Column key = {0}, value = {0}, names = {0}, values = {0};
    PyObject *times = NULL, *deltas = NULL, *counts = NULL, *counted = NULL, *result = NULL;
    int64_t headers = 0, with_headers = 0, bad_part = 0, bad_record = 0;
    int64_t rows = 0, row = 0;
    int fault = OK, has_headers;
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "a list is expected");
        return NULL;
    }
    if (parts_init(&parts, list) < 0)
        goto done;
    rows = parts.rows;
    times = PyBytes_FromStringAndSize(NULL, rows * 8);
    deltas = PyBytes_FromStringAndSize(NULL, rows * 4);
    counts = PyBytes_FromStringAndSize(NULL, (rows + 1) * 4);
    counted = PyBytes_FromStringAndSize(NULL, (rows + 7) / 8);
    if (!times || !deltas || !counts || !counted || column_init(&key, rows) < 0
        || column_init(&value, rows) < 0)
        goto done;
    int64_t *times_us = (int64_t *)PyBytes_AsString(times);
    int32_t *offset_deltas = (int32_t *)PyBytes_AsString(deltas);
    int32_t *header_ends = (int32_t *)PyBytes_AsString(counts);
    uint8_t *header_valid = (uint8_t *)PyBytes_AsString(counted);
    header_ends[0] = 0;
    memset(header_valid, 0, (rows + 7) / 8);

    Py_BEGIN_ALLOW_THREADS;
    for (Py_ssize_t n = 0; n < parts.count && !fault; n++) {
        Part *part = &parts.parts[n];
        Cursor batch = {part->data.buf, (const uint8_t *)part->data.buf + part->data.len};
        bad_part = n;
        for (bad_record = 0; bad_record < part->records; bad_record++, row++) {
            int64_t size, delta_ms, delta, length, count, time_ms;
            const uint8_t *start;
            if ((fault = read_varint(&batch, &size)))
                break;
            if (size < 0 || size > batch.end - batch.at) {
                fault = ENDS_EARLY;
                break;
            }
            Cursor record = {batch.at, batch.at + size};
            batch.at += size;
            if (size < 1) {
                fault = ENDS_EARLY;
                break;
            }
            record.at++; /* attributes: no bit has a meaning */
            if ((fault = read_varlong(&record, &delta_ms, 10))
                || (fault = read_varint(&record, &delta))
                || (fault = read_bytes(&record, &start, &length))
                || (fault = column_add(&key, row, start, length))
                || (fault = read_bytes(&record, &start, &length))
                || (fault = column_add(&value, row, start, length))
                || (fault = read_varint(&record, &count)))
                break;
            if (count < 0 || count > record.end - record.at) {
                fault = HEADER_COUNT;
                break;
            }
            /* The headers are read again when their number is known, from `sources` of the end. */
            int64_t ignored = 0;
            if (count) {
                header_valid[row >> 3] |= (uint8_t)(1u << (row & 7));
                with_headers++;
                if ((fault = read_headers(&record, count, NULL, NULL, &ignored)))
                    break;
                headers += count;
            }
            if (record.at != record.end) {
                fault = WRONG_SIZE;
                break;
            }
            if (headers > MAX_BYTES / 8) {
                fault = TOO_LARGE;
                break;
            }
            header_ends[row + 1] = (int32_t)headers;
            if (__builtin_add_overflow(part->base_timestamp_ms, delta_ms, &time_ms)
                || __builtin_mul_overflow(time_ms, 1000, &times_us[row])) {
                fault = TIME_RANGE;
                break;
            }
            offset_deltas[row] = (int32_t)delta;
        }
        if (!fault && batch.at != batch.end)
            fault = LEFT_OVER;
    }
    Py_END_ALLOW_THREADS;
    if (fault)
        goto done;
    if (column_allocate(&key) < 0 || column_allocate(&value) < 0)
        goto done;
    has_headers = headers > 0;
    if (has_headers && (column_init(&names, headers) < 0 || column_init(&values, headers) < 0))
        goto done;

    Py_BEGIN_ALLOW_THREADS;
    column_copy(&key, rows);
    column_copy(&value, rows);
    if (has_headers) {
        int64_t at = 0;
        row = 0;
        for (Py_ssize_t n = 0; n < parts.count && !fault; n++) {
            Part *part = &parts.parts[n];
            const uint8_t *end = (const uint8_t *)part->data.buf + part->data.len;
            bad_part = n;
            for (bad_record = 0; bad_record < part->records && !fault; bad_record++, row++) {
                int64_t count = header_ends[row + 1] - header_ends[row], repeated;
                int32_t bytes = value.ends[row + 1] - value.ends[row];
                if (!count)
                    continue;
                Cursor record = {value.sources[row] + bytes, end};
                fault = read_varint(&record, &repeated);
                if (!fault)
                    fault = read_headers(&record, count, &names, &values, &at);
            }
        }
    }
    Py_END_ALLOW_THREADS;
    if (fault)
        goto done;
    if (has_headers) {
        if (column_allocate(&names) < 0 || column_allocate(&values) < 0)
            goto done;
        column_copy(&names, headers);
        column_copy(&values, headers);
    }
    PyObject *of_headers;
    if (has_headers)
        of_headers = Py_BuildValue("(OONN)", counts, with_headers < rows ? counted : Py_None,
                                   column_result(&names), column_result(&values));
    else
        of_headers = Py_NewRef(Py_None);
    if (of_headers)
        result = Py_BuildValue("(OONNN)", times, deltas, column_result(&key),
                               column_result(&value), of_headers);
done:
    if (fault) {
        PyObject *error = Py_BuildValue("(iLL)", fault, (long long)bad_part, (long long)bad_record);
        if (error) {
            PyErr_SetObject(PyExc_ValueError, error);
            Py_DECREF(error);
        }
    }
    Py_XDECREF(times);
    Py_XDECREF(deltas);
    Py_XDECREF(counts);
    Py_XDECREF(counted);
    column_clear(&key);
    column_clear(&value);
    column_clear(&names);
    column_clear(&values);
    parts_clear(&parts);
    return result;
}

/* --- encoding ---------------------------------------------------------------------------------- */

/* A binary array in Arrow's buffers; rows are counted from the array's offset in them. */
typedef struct {
    Py_buffer offsets, data, validity;
    int is_present;
    int64_t first;
} Binary;

static void binary_clear(Binary *array)
{
    if (array->offsets.obj)
        PyBuffer_Release(&array->offsets);
    if (array->data.obj)
        PyBuffer_Release(&array->data);
    if (array->validity.obj)
        PyBuffer_Release(&array->validity);
}

/* Takes (offsets, validity or None, data, first row), or None for a column of nulls. */
static int binary_init(Binary *array, PyObject *item, int64_t rows)
{
    long long first;
    memset(array, 0, sizeof *array);
    if (item == Py_None)
        return 0;
    if (!PyArg_ParseTuple(item, "y*z*y*L", &array->offsets, &array->validity, &array->data, &first))
        return -1;
    array->is_present = 1;
    array->first = first;
    if (first < 0 || first > MAX_BYTES || (first + rows + 1) * 4 > array->offsets.len
        || (array->validity.obj && (first + rows + 7) / 8 > array->validity.len)) {
        PyErr_SetString(PyExc_ValueError, "the buffers of an array are too short");
        return -1;
    }
    return 0;
}

static inline int is_valid(const Binary *array, int64_t row)
{
    int64_t bit = array->first + row;
    return !array->validity.obj || (((const uint8_t *)array->validity.buf)[bit >> 3] >> (bit & 7) & 1);
}

/* The bytes of a row; -1 as the length of a null, -2 for positions outside of the data. */
static inline int64_t binary_get(const Binary *array, int64_t row, const uint8_t **start)
{
    if (!array->is_present || !is_valid(array, row))
        return -1;
    const int32_t *offsets = (const int32_t *)array->offsets.buf + array->first + row;
    int64_t from = offsets[0], to = offsets[1];
    if (from < 0 || to < from || to > array->data.len)
        return -2;
    *start = (const uint8_t *)array->data.buf + from;
    return to - from;
}

static inline uint64_t zigzag(int64_t value)
{
    return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
}

static inline int varint_bytes(int64_t value)
{
    uint64_t bits = zigzag(value);
    int bytes = 1;
    while (bits >= 0x80) {
        bits >>= 7;
        bytes++;
    }
    return bytes;
}

static inline uint8_t *write_varint(uint8_t *at, int64_t value)
{
    uint64_t bits = zigzag(value);
    while (bits >= 0x80) {
        *at++ = (uint8_t)(bits | 0x80);
        bits >>= 7;
    }
    *at++ = (uint8_t)bits;
    return at;
}

static inline int64_t bytes_size(const Binary *array, int64_t row)
{
    const uint8_t *start;
    int64_t length = binary_get(array, row, &start);
    if (length == -2)
        return -1;
    return varint_bytes(length) + (length > 0 ? length : 0);
}

/* Writes a length and its bytes; NULL when there is no room, since the array has changed. */
static inline uint8_t *write_bytes(uint8_t *at, const uint8_t *end, const Binary *array, int64_t row)
{
    const uint8_t *start = NULL;
    int64_t length = binary_get(array, row, &start);
    if (length < -1 || end - at < varint_bytes(length) + (length > 0 ? length : 0))
        return NULL;
    at = write_varint(at, length);
    if (length > 0) {
        memcpy(at, start, (size_t)length);
        at += length;
    }
    return at;
}

static const char encode_doc[] =
    "encode(prefix_bytes, timestamp_deltas_ms, offset_deltas, key, value, headers)\n--\n\n"
    "Return the records' bytes after `prefix_bytes` zeros; record_codec.py describes it.";

static PyObject *encode(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer times = {0}, deltas = {0}, lists = {0}, lists_valid = {0};
    Binary key = {0}, value = {0}, names = {0}, values = {0};
    PyObject *key_item, *value_item, *headers_item, *names_item, *values_item, *result = NULL;
    int32_t *sizes = NULL;
    long long prefix, first_list = 0;
    int fault = 0;
    if (!PyArg_ParseTuple(args, "Ly*y*OOO", &prefix, &times, &deltas, &key_item, &value_item,
                          &headers_item))
        return NULL;
    int64_t rows = times.len / 8, items = 0;
    if (prefix < 0 || prefix > 4096 || deltas.len / 4 != rows) {
        PyErr_SetString(PyExc_ValueError, "columns of unequal lengths");
        goto done;
    }
    if (binary_init(&key, key_item, rows) < 0 || binary_init(&value, value_item, rows) < 0)
        goto done;
    if (headers_item != Py_None) {
        /* (offsets, validity or None, first row, number of items, names, values) */
        long long item_count;
        if (!PyArg_ParseTuple(headers_item, "y*z*LLOO", &lists, &lists_valid, &first_list,
                              &item_count, &names_item, &values_item))
            goto done;
        items = item_count;
        if (first_list < 0 || first_list > MAX_BYTES || items < 0 || items > MAX_BYTES
            || (first_list + rows + 1) * 4 > lists.len
            || (lists_valid.obj && (first_list + rows + 7) / 8 > lists_valid.len)) {
            PyErr_SetString(PyExc_ValueError, "the buffers of an array are too short");
            goto done;
        }
        if (binary_init(&names, names_item, items) < 0 || binary_init(&values, values_item, items) < 0)
            goto done;
    }
    sizes = PyMem_Malloc((rows ? rows : 1) * sizeof *sizes);
    if (!sizes) {
        PyErr_NoMemory();
        goto done;
    }
    const int64_t *times_ms = times.buf;
    const int32_t *offset_deltas = deltas.buf;
    const int32_t *list_offsets = lists.obj ? (const int32_t *)lists.buf + first_list : NULL;
    const uint8_t *list_bits = lists_valid.obj ? lists_valid.buf : NULL;
    int64_t total = prefix;

#define HEADERS_OF(row, from, to)                                                                  \
    int64_t from = 0, to = 0;                                                                      \
    if (list_offsets                                                                               \
        && (!list_bits || (list_bits[(first_list + (row)) >> 3] >> ((first_list + (row)) & 7) & 1))) { \
        from = list_offsets[row];                                                                  \
        to = list_offsets[(row) + 1];                                                              \
    }

    Py_BEGIN_ALLOW_THREADS;
    for (int64_t row = 0; row < rows; row++) {
        int64_t of_key = bytes_size(&key, row), of_value = bytes_size(&value, row);
        HEADERS_OF(row, from, to);
        int64_t size = 1 + varint_bytes(times_ms[row]) + varint_bytes(offset_deltas[row]) + of_key
                       + of_value + varint_bytes(to - from);
        if (of_key < 0 || of_value < 0 || from < 0 || to < from || to > items) {
            fault = 1;
            break;
        }
        for (int64_t item = from; item < to; item++) {
            int64_t of_name = bytes_size(&names, item), of_text = bytes_size(&values, item);
            if (of_name < 0 || of_text < 0) {
                fault = 1;
                break;
            }
            size += of_name + of_text;
        }
        total += size + 5;
        if (fault || total > MAX_BYTES) {
            fault = fault ? fault : 2;
            break;
        }
        total += varint_bytes(size) - 5;
        sizes[row] = (int32_t)size;
    }
    Py_END_ALLOW_THREADS;
    if (fault)
        goto done;
    result = PyByteArray_FromStringAndSize(NULL, total);
    if (!result)
        goto done;
    uint8_t *at = (uint8_t *)PyByteArray_AsString(result);
    const uint8_t *end = at + total;
    memset(at, 0, prefix);
    at += prefix;

    Py_BEGIN_ALLOW_THREADS;
    for (int64_t row = 0; row < rows && at; row++) {
        HEADERS_OF(row, from, to);
        if (end - at < 5 + 1 + 10 + 5 + 5
            && end - at < varint_bytes(sizes[row]) + (int64_t)sizes[row]) {
            at = NULL;
            break;
        }
        at = write_varint(at, sizes[row]);
        *at++ = 0;
        at = write_varint(at, times_ms[row]);
        at = write_varint(at, offset_deltas[row]);
        at = write_bytes(at, end, &key, row);
        if (at)
            at = write_bytes(at, end, &value, row);
        if (!at || end - at < varint_bytes(to - from)) {
            at = NULL;
            break;
        }
        at = write_varint(at, to - from);
        for (int64_t item = from; item < to && at; item++) {
            at = write_bytes(at, end, &names, item);
            if (at)
                at = write_bytes(at, end, &values, item);
        }
    }
    Py_END_ALLOW_THREADS;
    if (at != end) {
        fault = 1;
        Py_CLEAR(result);
    }
done:
    if (fault == 1)
        PyErr_SetString(PyExc_ValueError, "the offsets of an array are not those of its data");
    else if (fault == 2)
        PyErr_SetString(PyExc_OverflowError, "the records exceed 2 GiB");
    PyMem_Free(sizes);
    if (times.obj)
        PyBuffer_Release(&times);
    if (deltas.obj)
        PyBuffer_Release(&deltas);
    if (lists.obj)
        PyBuffer_Release(&lists);
    if (lists_valid.obj)
        PyBuffer_Release(&lists_valid);
    binary_clear(&key);
    binary_clear(&value);
    binary_clear(&names);
    binary_clear(&values);
    return result;
}

static PyMethodDef methods[] = {
    {"decode", decode, METH_O, decode_doc},
    {"encode", encode, METH_VARARGS, encode_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", "Loops over the records of v2 record batches.", 0, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModule_Create(&definition);
}
