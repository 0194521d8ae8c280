from .app import create_app as create_app
from .openapi import openapi_document as openapi_document
from .settings import ConsoleSettings as ConsoleSettings
