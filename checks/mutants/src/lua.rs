//! Mutants of the scripts.

use tree_sitter::{Node, Parser};

use crate::site::{Change, Site, other_operator, short, with};

pub(crate) fn sites(text: &str) -> Vec<Site> {
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_lua::LANGUAGE.into()).expect("one grammar has one version");
    let tree = parser.parse(text, None).expect("nothing stops it");
    let mut walk = Walk { text, functions: Vec::new(), sites: Vec::new() };
    walk.visit(tree.root_node());
    walk.sites
}

struct Walk<'a> {
    text: &'a str,
    functions: Vec<String>,
    sites: Vec<Site>,
}

impl<'a> Walk<'a> {
    fn text(&self, node: Node<'_>) -> &'a str {
        &self.text[node.byte_range()]
    }

    fn replace(&mut self, node: Node<'_>, instead: &str, what: String) {
        self.sites.push(Site::new(node, Change::Instead(instead.to_owned()), &self.functions, what));
    }

    fn visit(&mut self, node: Node<'_>) {
        let text = self.text(node);
        let name = node.child_by_field_name("name").map(|name| self.text(name));
        let operator = node.child_by_field_name("operator").map(|operator| (operator, self.text(operator)));
        match (node.kind(), operator) {
            ("function_declaration", _) => self.functions.push(name.unwrap_or_default().to_owned()),
            ("if_statement" | "elseif_statement", _) => self.condition(node),
            ("binary_expression", Some((_, "and" | "or"))) => {
                for operand in node.named_children(&mut node.walk()) {
                    let what = format!("{} -> {}", short(text), short(self.text(operand)));
                    self.replace(node, self.text(operand), what);
                }
            }
            ("binary_expression", Some((operator, sign))) => {
                let negated = match sign {
                    "==" => Some("~="),
                    "~=" => Some("=="),
                    _ => other_operator(sign),
                };
                if let Some(other) = negated {
                    let what = format!("{}: {sign} -> {other}", short(text));
                    self.replace(node, &with(self.text, node, operator, other), what);
                }
            }
            ("unary_expression", Some((_, "not"))) => {
                let operand = node.child_by_field_name("operand").map_or("", |operand| self.text(operand));
                self.replace(node, &format!("({operand})"), format!("{} -> {operand}", short(text)));
            }
            ("function_call", _) => {
                if node.parent().is_some_and(|parent| ["block", "chunk"].contains(&parent.kind())) {
                    self.replace(node, "", format!("without {}", short(text)));
                }
                let instead = match name {
                    Some("math.min") => "math.max",
                    Some("math.max") => "math.min",
                    _ => "",
                };
                if let Some(function) = node.child_by_field_name("name").filter(|_| !instead.is_empty()) {
                    let what = format!("{} -> {instead}", short(text));
                    self.replace(node, &with(self.text, node, function, instead), what);
                }
            }
            ("assignment_statement", _)
                if node.parent().is_some_and(|it| it.kind() != "variable_declaration") =>
            {
                self.replace(node, "", format!("without {}", short(text)));
            }
            ("true" | "false", _) => {
                let instead = if text == "true" { "false" } else { "true" };
                let around = node.parent().map_or("", |parent| self.text(parent));
                self.replace(node, instead, format!("{}: {text} -> {instead}", short(around)));
            }
            // Every call would notice another index into KEYS.
            ("number", _) if node.parent().is_some_and(|it| it.kind() != "bracket_index_expression") => {
                let around = node.parent().map_or("", |parent| self.text(parent));
                let instead = if text == "0" { "1" } else { "0" };
                self.replace(node, instead, format!("{}: {text} -> {instead}", short(around)));
            }
            _ => {}
        }
        node.named_children(&mut node.walk()).for_each(|child| self.visit(child));
        if node.kind() == "function_declaration" {
            self.functions.pop();
        }
    }

    fn condition(&mut self, node: Node<'_>) {
        let Some(condition) = node.child_by_field_name("condition") else { return };
        let operator = condition.child_by_field_name("operator").map(|operator| self.text(operator));
        for (value, with_operands) in [("true", "and"), ("false", "or")] {
            // Removing one operand is harder to notice.
            if operator != Some(with_operands) {
                self.replace(condition, value, format!("{} -> {value}", short(self.text(condition))));
            }
        }
    }
}
