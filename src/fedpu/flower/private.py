"""All that fedpu uses of Flower besides its public API, which is why the extra pins one version of it.

Names are imported when first asked for: a node needs other parts than a SuperLink, which is slow to load and reads its
environment when it is imported.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flwr.app.message import remove_content_from_message as remove_content_from_message
    from flwr.clientapp.typing import Mod as Mod
    from flwr.common.constant import ISOLATION_MODE_SUBPROCESS as ISOLATION_MODE_SUBPROCESS
    from flwr.common.constant import TRANSPORT_TYPE_GRPC_RERE as TRANSPORT_TYPE_GRPC_RERE
    from flwr.common.constant import ErrorCode as ErrorCode
    from flwr.common.serde import message_from_proto as message_from_proto
    from flwr.common.serde import message_to_proto as message_to_proto
    from flwr.proto.control_pb2 import ListNodesRequest as ListNodesRequest
    from flwr.proto.control_pb2 import RegisterNodeRequest as RegisterNodeRequest
    from flwr.proto.fleet_pb2 import ActivateNodeRequest as ActivateNodeRequest
    from flwr.proto.fleet_pb2 import DeactivateNodeRequest as DeactivateNodeRequest
    from flwr.proto.fleet_pb2 import PullMessagesRequest as PullMessagesRequest
    from flwr.proto.fleet_pb2 import PullMessagesResponse as PullMessagesResponse
    from flwr.proto.fleet_pb2 import PushMessagesRequest as PushMessagesRequest
    from flwr.proto.fleet_pb2 import RegisterNodeFleetRequest as RegisterNodeFleetRequest
    from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest as SendNodeHeartbeatRequest
    from flwr.proto.node_pb2 import Node as Node
    from flwr.supercore.cli import flower_superexec as flower_superexec
    from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME as FLWR_IN_MEMORY_DB_NAME
    from flwr.supercore.constant import TASK_TYPE_TO_APPIO_API_ADDRESS_ARG as TASK_TYPE_TO_APPIO_API_ADDRESS_ARG
    from flwr.supercore.constant import TASK_TYPE_TO_COMMAND as TASK_TYPE_TO_COMMAND
    from flwr.supercore.control.control_http_client import ControlHttpClient as ControlHttpClient
    from flwr.supercore.error import FlowerError as FlowerError
    from flwr.supercore.http_logging import get_uvicorn_log_config as get_uvicorn_log_config
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects as get_all_nested_objects
    from flwr.supercore.inflatable.inflatable_object import get_object_tree as get_object_tree
    from flwr.supercore.inflatable.inflatable_object import iterate_object_tree as iterate_object_tree
    from flwr.supercore.inflatable.inflatable_object import no_object_id_recompute as no_object_id_recompute
    from flwr.supercore.inflatable.inflatable_protobuf_utils import (
        make_confirm_message_received_fn_protobuf as make_confirm_message_received_fn_protobuf,
    )
    from flwr.supercore.inflatable.inflatable_protobuf_utils import (
        make_pull_object_fn_protobuf as make_pull_object_fn_protobuf,
    )
    from flwr.supercore.inflatable.inflatable_protobuf_utils import (
        make_push_object_fn_protobuf as make_push_object_fn_protobuf,
    )
    from flwr.supercore.inflatable.inflatable_utils import ObjectPullError as ObjectPullError
    from flwr.supercore.inflatable.inflatable_utils import ObjectPushError as ObjectPushError
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents as inflate_object_from_contents
    from flwr.supercore.inflatable.inflatable_utils import pull_objects as pull_objects
    from flwr.supercore.inflatable.inflatable_utils import push_objects as push_objects
    from flwr.supercore.interceptors.http.runtime_version import (
        RuntimeVersionHttpInterceptor as RuntimeVersionHttpInterceptor,
    )
    from flwr.supercore.logger import console_handler as console_handler
    from flwr.supercore.primitives.asymmetric import generate_key_pairs as generate_key_pairs
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes as public_key_to_bytes
    from flwr.supercore.protobuf.client import ProtobufCall as ProtobufCall
    from flwr.supercore.protobuf.client import ProtobufClientInterceptor as ProtobufClientInterceptor
    from flwr.supercore.protobuf.client import ProtobufRequestContext as ProtobufRequestContext
    from flwr.supercore.superexec import run_superexec as run_superexec
    from flwr.supercore.superexec.executor import LaunchResult as LaunchResult
    from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor as SubprocessExecutor
    from flwr.supercore.superexec.executor.types import ExecutionSpec as ExecutionSpec
    from flwr.supercore.tls import get_client_tls_args as get_client_tls_args
    from flwr.supercore.utils import get_flwr_home as get_flwr_home
    from flwr.supercore.utils import get_popen_detach_kwargs as get_popen_detach_kwargs
    from flwr.superlink.auth_plugin import NoOpControlAuthnPlugin as NoOpControlAuthnPlugin
    from flwr.superlink.cli.flower_superlink import SuperLinkLifespan as SuperLinkLifespan
    from flwr.superlink.config_loader import SuperLinkLifespanConfig as SuperLinkLifespanConfig
    from flwr.superlink.grid import http_grid as http_grid
    from flwr.superlink.main import create_app as create_app
    from flwr.supernode.fleet_http_client import FleetHttpClient as FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor as NodeAuthHttpInterceptor

MODULES = {
    "get_flwr_home": "flwr.supercore.utils",
    "remove_content_from_message": "flwr.app.message",
    "Mod": "flwr.clientapp.typing",
    "ErrorCode": "flwr.common.constant",
    "ISOLATION_MODE_SUBPROCESS": "flwr.common.constant",
    "TRANSPORT_TYPE_GRPC_RERE": "flwr.common.constant",
    "message_from_proto": "flwr.common.serde",
    "message_to_proto": "flwr.common.serde",
    "ActivateNodeRequest": "flwr.proto.fleet_pb2",
    "DeactivateNodeRequest": "flwr.proto.fleet_pb2",
    "PullMessagesRequest": "flwr.proto.fleet_pb2",
    "PullMessagesResponse": "flwr.proto.fleet_pb2",
    "PushMessagesRequest": "flwr.proto.fleet_pb2",
    "RegisterNodeFleetRequest": "flwr.proto.fleet_pb2",
    "SendNodeHeartbeatRequest": "flwr.proto.heartbeat_pb2",
    "Node": "flwr.proto.node_pb2",
    "flower_superexec": "flwr.supercore.cli",
    "FLWR_IN_MEMORY_DB_NAME": "flwr.supercore.constant",
    "TASK_TYPE_TO_APPIO_API_ADDRESS_ARG": "flwr.supercore.constant",
    "TASK_TYPE_TO_COMMAND": "flwr.supercore.constant",
    "FlowerError": "flwr.supercore.error",
    "get_uvicorn_log_config": "flwr.supercore.http_logging",
    "get_all_nested_objects": "flwr.supercore.inflatable.inflatable_object",
    "get_object_tree": "flwr.supercore.inflatable.inflatable_object",
    "iterate_object_tree": "flwr.supercore.inflatable.inflatable_object",
    "no_object_id_recompute": "flwr.supercore.inflatable.inflatable_object",
    "make_confirm_message_received_fn_protobuf": "flwr.supercore.inflatable.inflatable_protobuf_utils",
    "make_pull_object_fn_protobuf": "flwr.supercore.inflatable.inflatable_protobuf_utils",
    "make_push_object_fn_protobuf": "flwr.supercore.inflatable.inflatable_protobuf_utils",
    "ListNodesRequest": "flwr.proto.control_pb2",
    "RegisterNodeRequest": "flwr.proto.control_pb2",
    "ControlHttpClient": "flwr.supercore.control.control_http_client",
    "ObjectPullError": "flwr.supercore.inflatable.inflatable_utils",
    "ObjectPushError": "flwr.supercore.inflatable.inflatable_utils",
    "inflate_object_from_contents": "flwr.supercore.inflatable.inflatable_utils",
    "pull_objects": "flwr.supercore.inflatable.inflatable_utils",
    "push_objects": "flwr.supercore.inflatable.inflatable_utils",
    "RuntimeVersionHttpInterceptor": "flwr.supercore.interceptors.http.runtime_version",
    "console_handler": "flwr.supercore.logger",
    "generate_key_pairs": "flwr.supercore.primitives.asymmetric",
    "public_key_to_bytes": "flwr.supercore.primitives.asymmetric",
    "ProtobufCall": "flwr.supercore.protobuf.client",
    "ProtobufClientInterceptor": "flwr.supercore.protobuf.client",
    "ProtobufRequestContext": "flwr.supercore.protobuf.client",
    "run_superexec": "flwr.supercore.superexec",
    "LaunchResult": "flwr.supercore.superexec.executor",
    "SubprocessExecutor": "flwr.supercore.superexec.executor.subprocess_executor",
    "ExecutionSpec": "flwr.supercore.superexec.executor.types",
    "get_client_tls_args": "flwr.supercore.tls",
    "get_popen_detach_kwargs": "flwr.supercore.utils",
    "NoOpControlAuthnPlugin": "flwr.superlink.auth_plugin",
    "SuperLinkLifespan": "flwr.superlink.cli.flower_superlink",
    "SuperLinkLifespanConfig": "flwr.superlink.config_loader",
    "http_grid": "flwr.superlink.grid",
    "create_app": "flwr.superlink.main",
    "FleetHttpClient": "flwr.supernode.fleet_http_client",
    "NodeAuthHttpInterceptor": "flwr.supernode.node_auth_http_interceptor",
}
"""where each name is in Flower 1.41"""


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(MODULES[name])
    return getattr(module, name) if hasattr(module, name) else importlib.import_module(f"{MODULES[name]}.{name}")
