"""A clock on which ten minutes pass while a test takes ninety seconds."""

from spark_log.clock import SYSTEM_CLOCK

SPEED = 7


class FastClock:
    """Intervals and timeouts pass `SPEED` times as fast as they do; the date is the machine's."""

    def time_us(self):
        return SYSTEM_CLOCK.time_us()

    def monotonic_ms(self):
        return SYSTEM_CLOCK.monotonic_ms() * SPEED

    def sleep_ms(self, duration_ms):
        SYSTEM_CLOCK.sleep_ms(duration_ms / SPEED)
