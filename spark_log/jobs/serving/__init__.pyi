from .gateway_tasks import GatewayTasks as GatewayTasks
from .gateway_tasks import ServingGateway as ServingGateway
from .scaling import Autoscaler as Autoscaler
from .scaling import GatewayLoads as GatewayLoads
from .scaling import ScalingPolicy as ScalingPolicy
from .scaling import decide as decide
