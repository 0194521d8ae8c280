from .creation import partition_records as partition_records
from .creation import topic_records as topic_records
from .creation import validate_new_topic as validate_new_topic
from .names import INTERNAL_TOPICS as INTERNAL_TOPICS
from .names import collision_key as collision_key
from .names import validate_topic_name as validate_topic_name
