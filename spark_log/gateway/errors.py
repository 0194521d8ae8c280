"""Errors of this package as the error codes of Kafka's protocol."""

from __future__ import annotations

from enum import IntEnum

from spark_log import errors


class ErrorCode(IntEnum):
    """Kafka's error codes (``org.apache.kafka.common.protocol.Errors``) that a gateway answers."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    TRANSACTION_ABORTABLE = 120
    INVALID_REGULAR_EXPRESSION = 128


_CODES: dict[type[errors.SparkLogError], ErrorCode] = {
    # A storage that fails is Kafka's broken log directory: clients ask again.
    errors.StorageError: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.AuthorizationError: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    errors.UnknownOutcomeError: ErrorCode.REQUEST_TIMED_OUT,
    errors.ClockSkewError: ErrorCode.UNKNOWN_SERVER_ERROR,
    errors.InvalidConfigurationError: ErrorCode.INVALID_CONFIG,
    errors.UnsupportedVersionError: ErrorCode.UNSUPPORTED_VERSION,
    errors.InvalidUpdateVersionError: ErrorCode.INVALID_UPDATE_VERSION,
    errors.UnacceptableCredentialError: ErrorCode.UNACCEPTABLE_CREDENTIAL,
    errors.DuplicateResourceError: ErrorCode.DUPLICATE_RESOURCE,
    errors.ResourceNotFoundError: ErrorCode.RESOURCE_NOT_FOUND,
    errors.InvalidRecordError: ErrorCode.INVALID_RECORD,
    errors.RecordTooLargeError: ErrorCode.MESSAGE_TOO_LARGE,
    errors.InvalidTimestampError: ErrorCode.INVALID_TIMESTAMP,
    errors.InvalidTopicError: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.InvalidPartitionsError: ErrorCode.INVALID_PARTITIONS,
    errors.InvalidReplicationFactorError: ErrorCode.INVALID_REPLICATION_FACTOR,
    errors.InvalidReplicaAssignmentError: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    errors.BrokerIdNotRegisteredError: ErrorCode.BROKER_ID_NOT_REGISTERED,
    errors.DuplicateBrokerRegistrationError: ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    errors.ReplicationError: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.LeaderNotAvailableError: ErrorCode.LEADER_NOT_AVAILABLE,
    errors.NotEnoughReplicasError: ErrorCode.NOT_ENOUGH_REPLICAS,
    errors.NotEnoughReplicasAfterAppendError: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    errors.ElectionNotNeededError: ErrorCode.ELECTION_NOT_NEEDED,
    errors.PreferredLeaderNotAvailableError: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    errors.EligibleLeadersNotAvailableError: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    errors.NoReassignmentInProgressError: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    errors.TopicAlreadyExistsError: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.UnknownTopicOrPartitionError: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.CorruptRecordError: ErrorCode.CORRUPT_MESSAGE,
    errors.OffsetOutOfRangeError: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.LogEndOffsetMismatchError: ErrorCode.REQUEST_TIMED_OUT,
    errors.LeaderEpochError: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.FencedLeaderEpochError: ErrorCode.FENCED_LEADER_EPOCH,
    errors.UnknownLeaderEpochError: ErrorCode.UNKNOWN_LEADER_EPOCH,
    errors.OutOfOrderSequenceError: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.InvalidProducerEpochError: ErrorCode.INVALID_PRODUCER_EPOCH,
    errors.NotRepeatableError: ErrorCode.UNKNOWN_SERVER_ERROR,
    errors.UnsupportedCompressionTypeError: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    errors.DataLossError: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.CommitFailedError: ErrorCode.ILLEGAL_GENERATION,
    errors.IllegalStateError: ErrorCode.UNKNOWN_SERVER_ERROR,
    errors.KafkaTimeoutError: ErrorCode.REQUEST_TIMED_OUT,
    errors.SerializationError: ErrorCode.INVALID_RECORD,
    errors.NoOffsetForPartitionError: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.RecordDeserializationError: ErrorCode.INVALID_RECORD,
    errors.WakeupError: ErrorCode.REQUEST_TIMED_OUT,
    errors.ConcurrentModificationError: ErrorCode.REQUEST_TIMED_OUT,
    errors.InvalidGroupIdError: ErrorCode.INVALID_GROUP_ID,
    errors.UnknownMemberIdError: ErrorCode.UNKNOWN_MEMBER_ID,
    errors.FencedInstanceIdError: ErrorCode.FENCED_INSTANCE_ID,
    errors.IllegalGenerationError: ErrorCode.ILLEGAL_GENERATION,
    errors.UnstableOffsetCommitError: ErrorCode.UNSTABLE_OFFSET_COMMIT,
    errors.InconsistentGroupProtocolError: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    errors.GroupMaxSizeReachedError: ErrorCode.GROUP_MAX_SIZE_REACHED,
    errors.GroupIdNotFoundError: ErrorCode.GROUP_ID_NOT_FOUND,
    errors.GroupNotEmptyError: ErrorCode.NON_EMPTY_GROUP,
    errors.GroupSubscribedToTopicError: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    errors.InvalidSessionTimeoutError: ErrorCode.INVALID_SESSION_TIMEOUT,
    errors.TransactionError: ErrorCode.INVALID_TXN_STATE,
    errors.ConcurrentTransactionsError: ErrorCode.CONCURRENT_TRANSACTIONS,
    errors.TransactionAbortableError: ErrorCode.TRANSACTION_ABORTABLE,
    errors.ProducerFencedError: ErrorCode.PRODUCER_FENCED,
    errors.InvalidTxnStateError: ErrorCode.INVALID_TXN_STATE,
    errors.TransactionalIdNotFoundError: ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    errors.InvalidTxnTimeoutError: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
}


def error_code(error: BaseException) -> ErrorCode:
    """Return Kafka's code of an error; UNKNOWN_SERVER_ERROR if it has none."""
    for kind in type(error).__mro__:
        if (code := _CODES.get(kind)) is not None:
            return code
    return ErrorCode.UNKNOWN_SERVER_ERROR
