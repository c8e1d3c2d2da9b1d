"""What a wire protocol is made of. A plugin that provides one imports this package and `kiwi_gw.api`.

`tests/plugins/line_protocol` is a whole protocol: over WebSocket and HTTP, with a login, its own section of
the configuration and its own block in that of a source.
"""

from kiwi_gw.codes import CloseCode as CloseCode
from kiwi_gw.codes import RefusalCode as RefusalCode
from kiwi_gw.core.commands import AddCredit as AddCredit
from kiwi_gw.core.commands import Call as Call
from kiwi_gw.core.commands import Cancel as Cancel
from kiwi_gw.core.commands import Close as Close
from kiwi_gw.core.commands import Command as Command
from kiwi_gw.core.commands import Continue as Continue
from kiwi_gw.core.commands import Inspect as Inspect
from kiwi_gw.core.commands import LabelLimit as LabelLimit
from kiwi_gw.core.commands import LogIn as LogIn
from kiwi_gw.core.commands import Offload as Offload
from kiwi_gw.core.commands import Open as Open
from kiwi_gw.core.commands import Reconfigure as Reconfigure
from kiwi_gw.core.commands import Reply as Reply
from kiwi_gw.core.commands import Session as Session
from kiwi_gw.core.commands import SetTimer as SetTimer
from kiwi_gw.core.commands import Violation as Violation
from kiwi_gw.core.notices import CallDone as CallDone
from kiwi_gw.core.notices import Cancelled as Cancelled
from kiwi_gw.core.notices import Continued as Continued
from kiwi_gw.core.notices import CredentialsExpiring as CredentialsExpiring
from kiwi_gw.core.notices import CreditAdded as CreditAdded
from kiwi_gw.core.notices import Draining as Draining
from kiwi_gw.core.notices import Ended as Ended
from kiwi_gw.core.notices import Inspected as Inspected
from kiwi_gw.core.notices import Lagged as Lagged
from kiwi_gw.core.notices import LimitReached as LimitReached
from kiwi_gw.core.notices import Notice as Notice
from kiwi_gw.core.notices import Offloaded as Offloaded
from kiwi_gw.core.notices import Opened as Opened
from kiwi_gw.core.notices import OpenFailed as OpenFailed
from kiwi_gw.core.notices import PositionsReported as PositionsReported
from kiwi_gw.core.notices import ReconfigureRefused as ReconfigureRefused
from kiwi_gw.core.notices import SourceAppeared as SourceAppeared
from kiwi_gw.core.notices import SourceDegraded as SourceDegraded
from kiwi_gw.core.notices import TimerFired as TimerFired
from kiwi_gw.core.notices import Unanswered as Unanswered
from kiwi_gw.dialect_api.dialect import Dialect as Dialect
from kiwi_gw.dialect_api.dialect import DialectContext as DialectContext
from kiwi_gw.dialect_api.dialect import DialectType as DialectType
from kiwi_gw.dialect_api.dialect import Document as Document
from kiwi_gw.dialect_api.dialect import Messages as Messages
from kiwi_gw.dialect_api.dialect import Route as Route
from kiwi_gw.dialect_api.dialect import WebSocketRoute as WebSocketRoute
from kiwi_gw.dialect_api.frames import encodable as encodable
from kiwi_gw.dialect_api.frames import message_frame as message_frame
from kiwi_gw.dialect_api.frames import text_frame as text_frame
from kiwi_gw.dialect_api.http import HttpRequest as HttpRequest
from kiwi_gw.dialect_api.http import HttpResponse as HttpResponse
from kiwi_gw.dialect_api.http import HttpRoute as HttpRoute
from kiwi_gw.dialect_api.http import InvalidRequest as InvalidRequest
from kiwi_gw.dialect_api.http import NoParameters as NoParameters
from kiwi_gw.dialect_api.http import Operation as Operation
from kiwi_gw.dialect_api.http import openapi as openapi
from kiwi_gw.dialect_api.http import read_parameters as read_parameters
from kiwi_gw.dialect_api.limits import SessionLimits as SessionLimits
from kiwi_gw.dialect_api.throttle import Throttle as Throttle
from kiwi_gw.dialect_api.throttle import Verdict as Verdict
from kiwi_gw.model import CloseReason as CloseReason
from kiwi_gw.model import Mode as Mode
from kiwi_gw.model import OverflowPolicy as OverflowPolicy
