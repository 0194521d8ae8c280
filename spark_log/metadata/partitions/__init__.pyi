from .in_sync_replicas import begin_joining as begin_joining
from .in_sync_replicas import complete_joining as complete_joining
from .in_sync_replicas import leave_isr as leave_isr
