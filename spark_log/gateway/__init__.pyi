from .gateway import Gateway as Gateway
from .server import GatewayServer as GatewayServer
