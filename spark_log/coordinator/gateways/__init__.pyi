from .registry import GatewayRegistry as GatewayRegistry
from .registry import RegisteredGateway as RegisteredGateway
from .registry_log import GATEWAY_REGISTRY as GATEWAY_REGISTRY
from .registry_log import GatewayLife as GatewayLife
from .registry_log import GatewayRegistryLog as GatewayRegistryLog
from .registry_log import gateway_heartbeats as gateway_heartbeats
from .registry_log import read_gateways as read_gateways
