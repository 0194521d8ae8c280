from .claims import claims_in_force as claims_in_force
from .cooperative_sticky import cooperative_step as cooperative_step
from .partition_assignor import Subscription as Subscription
from .registry import assignor as assignor
from .whole_stripes import assign_whole_stripes as assign_whole_stripes
