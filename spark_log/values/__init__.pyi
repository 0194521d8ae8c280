from .avro_framing import unframed as unframed
from .topic_values import check_new_columns as check_new_columns
from .topic_values import present_columns as present_columns
from .topic_values import typed_values_of as typed_values_of
from .typed_values import DECODE_ERROR_FIELD as DECODE_ERROR_FIELD
from .typed_values import RESERVED_NAMES as RESERVED_NAMES
from .typed_values import TypedValues as TypedValues
