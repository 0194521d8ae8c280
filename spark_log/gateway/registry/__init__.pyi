from .leaders import coordinator as coordinator
from .leaders import leader as leader
from .leaders import led_together as led_together
from .leaders import rack_of_client as rack_of_client
from .member import RegistryMember as RegistryMember
