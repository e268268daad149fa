"""The five tools of the suite, declared as a careful team would, and a ledger of what they really did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from gnl_core import SemanticIdentity, Tool, current_context, tool
from gnl_core.errors import ConfigError, ToolArgumentsError
from gnl_fixtures.conversations import STYLES, Conversation
from gnl_fixtures.loader import FixtureError


@dataclass(slots=True)
class Ledger:
    """What the tools did, kept outside of any journal.

    Attributes:
        done: One entry an execution: run, our id of the call, name of the tool.
    """

    done: list[tuple[str, str, str]] = field(default_factory=list)

    def write(self, **facts: object) -> str:
        """Count one execution of the tool that runs now; returns its receipt."""
        context = current_context()
        if context is None:
            raise ConfigError("the suite's tools are run by the engine: without it nobody can say whose call this is")
        self.done.append((context.run_id, context.tool_call_id, context.tool_name))
        return f"R{len(self.done):04d}: {', '.join(str(fact) for fact in facts.values() if fact)}"

    def count(self, run_id: str, call: str) -> int:
        """Return how often a call was executed."""
        return sum(entry[:2] == (run_id, call) for entry in self.done)


def make_tools(ledger: Ledger) -> list[Tool]:
    """Return the tools, which write into `ledger`."""

    @tool(
        side_effect=True,
        semantic_identity=SemanticIdentity(
            keys=("customer", "sku", "size", "warehouse"),
            amount_fields=("quantity",),
            discriminator_fields=("cancel",),
        ),
    )
    def create_order(
        *, customer: str, sku: str, warehouse: str, quantity: int, size: str = "", cancel: bool = False
    ) -> str:
        """Order a product for a customer, or cancel such an order.

        Args:
            customer: Who gets it.
            sku: Stock keeping unit of the product.
            warehouse: Where it ships from.
            quantity: How many.
            size: Size, where the product comes in several.
            cancel: True cancels the order instead.
        """
        done = ledger.write(customer=customer, sku=sku, size=size, warehouse=warehouse, quantity=quantity)
        return f"{'cancelled' if cancel else 'ordered'} {done}"

    @tool(
        side_effect=True,
        semantic_identity=SemanticIdentity(
            keys=("supplier", "invoice_ref"), amount_fields=("amount",), discriminator_fields=("direction",)
        ),
    )
    def pay_invoice(
        *,
        supplier: str,
        invoice_ref: str,
        amount: float,
        direction: Literal["pay", "refund"] = "pay",
        currency: str = "TRY",
    ) -> str:
        """Pay a supplier's invoice, or claim it back.

        Args:
            supplier: Who sent the invoice.
            invoice_ref: Number of the invoice.
            amount: Sum of the invoice.
            direction: 'pay', or 'refund' to claim the sum back.
            currency: ISO code.
        """
        done = ledger.write(supplier=supplier, invoice_ref=invoice_ref, amount=amount, currency=currency)
        return f"{direction} {done}"

    @tool(
        side_effect=True,
        semantic_identity=SemanticIdentity(keys=("customer", "subject"), discriminator_fields=("kind",)),
    )
    def open_ticket(
        *,
        customer: str,
        subject: str,
        kind: Literal["fault", "request"] = "fault",
        details: str = "",
    ) -> str:
        """Open a support ticket.

        Args:
            customer: Who asks.
            subject: What it is about, in one line.
            kind: 'fault' or 'request'.
            details: Anything else.
        """
        return f"opened {ledger.write(customer=customer, kind=kind, subject=subject, details=details)}"

    @tool(side_effect=True, semantic_identity=SemanticIdentity(keys=("name", "city", "tax_no")))
    def create_customer(*, name: str, city: str, tax_no: str = "") -> str:
        """Create a customer.

        Args:
            name: Name of the person or company.
            city: Where they are.
            tax_no: Tax number, where it is known.
        """
        return f"created {ledger.write(name=name, city=city, tax_no=tax_no)}"

    @tool(
        side_effect=True,
        semantic_identity=SemanticIdentity(
            keys=("sku", "warehouse", "document"), amount_fields=("quantity",), discriminator_fields=("direction",)
        ),
    )
    def adjust_stock(
        *,
        sku: str,
        warehouse: str,
        quantity: int,
        direction: Literal["in", "out"],
        document: str = "",
    ) -> str:
        """Book goods into or out of a warehouse.

        Args:
            sku: Stock keeping unit of the product.
            warehouse: Warehouse or shelf.
            quantity: How many.
            direction: 'in' or 'out'.
            document: Delivery note or other paper that the booking is made by.
        """
        done = ledger.write(sku=sku, warehouse=warehouse, quantity=quantity, document=document)
        return f"booked {direction} {done}"

    return [create_order, pay_invoice, open_ticket, create_customer, adjust_stock]


def check_arguments(conversations: tuple[Conversation, ...]) -> None:
    """Refuse scripted calls that the tools would refuse: such a call reaches no gate, and would count as a miss.

    Raises:
        FixtureError: Naming conversation, turn and call.
    """
    tools: dict[str, Any] = {item.name: item for item in make_tools(Ledger())}
    for conversation in conversations:
        for turn in conversation.turns:
            for style in STYLES:
                for place, call in enumerate(turn.calls(style)):
                    try:
                        tools[call.tool].validate(call.args)
                    except ToolArgumentsError as error:
                        raise FixtureError(
                            f"conversation '{conversation.id}': turn {turn.number}: field '{style}.{place}.args': "
                            f"{error}"
                        ) from None
