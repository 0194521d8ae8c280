from .batch_processors import DeltaProcessor as DeltaProcessor
from .batch_processors import DestinationProcessor as DestinationProcessor
from .group_job import BatchProcessor as BatchProcessor
from .group_job import run_group_job as run_group_job
from .job_member import JobMember as JobMember
from .job_transactions import JobTransactions as JobTransactions
from .transactional_member import TransactionalMember as TransactionalMember
from .transform_processor import TransformProcessor as TransformProcessor
