//! Mutants of Rust.

use tree_sitter::{Node, Parser};

use crate::site::{Change, ON, Site, other_operator, short, with};

/// Constant results to replace a function's body, by a prefix of the return type.
const ANSWERS: [(&str, &[&str]); 12] = [
    ("bool", &["true", "false"]),
    ("Option<", &["None"]),
    ("Result<(),", &["Ok(())"]),
    ("Result<bool,", &["Ok(true)", "Ok(false)"]),
    ("Poll<()>", &["Poll::Ready(())", "Poll::Pending"]),
    ("Duration", &["Duration::ZERO"]),
    ("u", &["0"]),
    ("i64", &["0"]),
    ("Vec<", &["Vec::new()"]),
    ("String", &["String::new()"]),
    ("Result<Option<", &["Ok(None)"]),
    ("fmt::Result", &[]),
];

/// Returns the mutants of a file, and the names of out-of-line modules that are built only for tests.
pub(crate) fn sites(text: &str) -> (Vec<Site>, Vec<String>) {
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_rust::LANGUAGE.into()).expect("one grammar has one version");
    let tree = parser.parse(text, None).expect("nothing stops it");
    let mut walk = Walk { text, functions: Vec::new(), sites: Vec::new(), of_tests: Vec::new() };
    walk.children(tree.root_node());
    (walk.sites, walk.of_tests)
}

struct Walk<'a> {
    text: &'a str,
    /// Types and functions around the place.
    functions: Vec<String>,
    sites: Vec<Site>,
    of_tests: Vec<String>,
}

impl<'a> Walk<'a> {
    fn text(&self, node: Node<'_>) -> &'a str {
        &self.text[node.byte_range()]
    }

    fn add(&mut self, node: Node<'_>, before: String, after: &str, what: String) {
        let change = Change::Around(before, after.to_owned());
        self.sites.push(Site::new(node, change, &self.functions, what));
    }

    /// Replaces a node by an expression of the same type.
    fn replace(&mut self, node: Node<'_>, instead: &str, what: String) {
        self.add(node, format!("(if {ON} {{ {instead} }} else {{ "), " })", what);
    }

    fn within(&mut self, name: &str, node: Node<'_>) {
        self.functions.push(name.to_owned());
        self.children(node);
        self.functions.pop();
    }

    fn children(&mut self, node: Node<'_>) {
        let mut is_of_tests = false;
        for child in node.named_children(&mut node.walk()) {
            if child.kind() == "attribute_item" {
                is_of_tests |= is_of_tests_or_models(self.text(child));
            } else if !child.kind().ends_with("comment") {
                if !is_of_tests {
                    self.visit(child);
                } else if let Some(name) = child.child_by_field_name("name") {
                    self.of_tests.push(self.text(name).to_owned());
                }
                is_of_tests = false;
            }
        }
    }

    fn field(&mut self, node: Node<'_>, field: &str) {
        if let Some(child) = node.child_by_field_name(field) {
            self.visit(child);
        }
    }

    fn visit(&mut self, node: Node<'_>) {
        match node.kind() {
            // Code that does not run, runs at compile time, or is hidden in macros.
            "macro_invocation" | "macro_definition" | "const_item" | "static_item" | "const_block"
            | "enum_item" | "struct_item" | "type_item" | "use_declaration" | "parameters"
            | "closure_parameters" | "type_arguments" | "type_parameters" | "where_clause" => {}
            kind if kind.ends_with("_type") || kind.ends_with("_pattern") => {}
            "impl_item" => self.implementation(node),
            "trait_item" | "mod_item" => {
                let name = node.child_by_field_name("name").map_or("", |name| self.text(name));
                self.within(name, node);
            }
            "function_item" => self.function(node),
            "if_expression" | "while_expression" => self.branch(node),
            "match_arm" => self.arm(node),
            "binary_expression" => self.binary(node, true),
            "compound_assignment_expr" => self.operator(node),
            "unary_expression" if self.text(node).starts_with('!') => {
                self.negate(node);
                self.children(node);
            }
            "boolean_literal" => self.negate(node),
            "integer_literal" => self.integer(node),
            "identifier" | "scoped_identifier" => self.constant(node),
            "call_expression" => self.call(node),
            "expression_statement" => self.statement(node),
            "let_declaration" => {
                if node.child_by_field_name("pattern").is_some_and(|pattern| self.text(pattern) == "_") {
                    self.delete(node);
                }
                self.field(node, "value");
                self.field(node, "alternative");
            }
            "struct_expression" => self.structure(node),
            "field_expression" | "let_condition" | "type_cast_expression" | "field_initializer" => {
                self.field(node, "value");
            }
            "for_expression" => {
                self.field(node, "value");
                self.field(node, "body");
            }
            "array_expression" if node.child_by_field_name("length").is_some() => {}
            _ => self.children(node),
        }
    }

    fn implementation(&mut self, node: Node<'_>) {
        let of = node.child_by_field_name("trait").map_or("", |of| self.text(of));
        let name = node.child_by_field_name("type").map_or("", |name| self.text(name));
        // Text for human readers only.
        if !["Debug", "Display", "Error"].iter().any(|text| of.ends_with(text)) {
            self.within(name.split('<').next().unwrap_or_default(), node);
        }
    }

    fn function(&mut self, node: Node<'_>) {
        let is_const = |child: Node<'_>| {
            child.kind() == "function_modifiers" && self.text(child).split(' ').any(|word| word == "const")
        };
        let Some((name, body)) = node.child_by_field_name("name").zip(node.child_by_field_name("body"))
        else {
            return;
        };
        if node.named_children(&mut node.walk()).any(is_const) {
            return;
        }
        self.functions.push(self.text(name).to_owned());
        let answers = match node.child_by_field_name("return_type").map(|of| self.text(of)) {
            None => &[""][..],
            Some(of) => ANSWERS.iter().find(|(begin, _)| of.starts_with(begin)).map_or(&[][..], |it| it.1),
        };
        let does = self.text(body).trim_matches(['{', '}']).trim();
        for answer in answers.iter().filter(|answer| **answer != does) {
            self.add(body, format!("{{ if {ON} {{ return {answer}; }} "), "}", format!("return {answer}"));
        }
        self.children(body);
        self.functions.pop();
    }

    fn branch(&mut self, node: Node<'_>) {
        let Some(condition) = node.child_by_field_name("condition") else { return };
        // Any test on the way notices an endless loop.
        let values = if node.kind() == "if_expression" { &[true, false][..] } else { &[false] };
        if self.condition(condition, values) {
            self.field(node, "consequence");
        }
        self.field(node, "body");
        self.field(node, "alternative");
    }

    /// Mutates a condition: constant values, and the operands one by one. Returns true if the condition can
    /// hold without a seeded fault.
    fn condition(&mut self, node: Node<'_>, values: &[bool]) -> bool {
        let mut inner = node;
        while inner.kind() == "parenthesized_expression"
            && let Some(child) = inner.named_child(0)
        {
            inner = child;
        }
        let text = self.text(inner);
        if text.contains("fault!(") && !text.contains("!fault!(") && !text.contains("||") {
            return false;
        }
        let logical = self.logical(inner);
        if inner.kind().starts_with("let_") {
            if values.contains(&false) {
                self.add(node, format!("!{ON} && "), "", format!("{} -> false", short(text)));
            }
        } else if !text.trim_start_matches('!').starts_with("fault!(") {
            // With one operand less, && is true more often, and || less often, which is harder to notice.
            for value in values.iter().filter(|value| logical != Some(**value)) {
                let before = if *value { format!("({ON} || (") } else { format!("(!{ON} && (") };
                self.add(node, before, "))", format!("{} -> {value}", short(text)));
            }
        }
        match (inner.kind(), logical) {
            ("let_condition", _) => self.visit(inner),
            ("let_chain", _) => {
                for operand in inner.named_children(&mut inner.walk()) {
                    let values = if operand.kind() == "let_condition" { &[][..] } else { &[true] };
                    if operand.kind() == "let_condition" {
                        self.visit(operand);
                    } else {
                        self.condition(operand, values);
                    }
                }
            }
            (_, Some(neutral)) => {
                for operand in inner.named_children(&mut inner.walk()) {
                    self.condition(operand, &[neutral]);
                }
            }
            ("binary_expression", None) => self.binary(inner, false),
            ("boolean_literal", _) => {}
            ("unary_expression", _) => self.children(inner),
            _ => self.visit(inner),
        }
        true
    }

    /// The neutral operand of && or ||.
    fn logical(&self, node: Node<'_>) -> Option<bool> {
        match self.text(node.child_by_field_name("operator")?) {
            "&&" => Some(true),
            "||" => Some(false),
            _ => None,
        }
    }

    fn binary(&mut self, node: Node<'_>, is_value: bool) {
        if let Some(neutral) = self.logical(node) {
            self.condition(node, &[!neutral]);
            return;
        }
        let operator = node.child_by_field_name("operator").map_or("", |operator| self.text(operator));
        if is_value && ["==", "!=", "<", "<=", ">", ">="].contains(&operator) {
            self.negate(node);
        }
        self.operator(node);
    }

    fn operator(&mut self, node: Node<'_>) {
        if let Some(operator) = node.child_by_field_name("operator")
            && let Some(other) = other_operator(self.text(operator))
        {
            let what = format!("{}: {} -> {other}", short(self.text(node)), self.text(operator));
            self.replace(node, &with(self.text, node, operator, other), what);
        }
        self.field(node, "left");
        self.field(node, "right");
    }

    fn negate(&mut self, node: Node<'_>) {
        if !self.text(node).contains("fault!(") {
            self.add(
                node,
                format!("({ON} != ("),
                "))",
                format!("{} -> not so", short(self.in_context(node))),
            );
        }
    }

    /// Replaces a number by 0, or 0 by 1; a time or a size larger by one might go unnoticed.
    fn integer(&mut self, node: Node<'_>) {
        let text = self.text(node);
        let instead = if text == "0" { "1" } else { "0" };
        let what = format!("{}: {text} -> {instead}", short(self.in_context(node)));
        self.replace(node, instead, what);
    }

    /// Describes a literal by the expression around.
    fn in_context(&self, node: Node<'_>) -> &'a str {
        let mut around = node;
        while around.kind().ends_with("literal") || around.kind() == "arguments" {
            let Some(parent) = around.parent() else { break };
            around = parent;
        }
        self.text(around)
    }

    /// Replaces a named constant by zero of its type, unless it is zero already.
    fn constant(&mut self, node: Node<'_>) {
        let text = self.text(node);
        let name = text.rsplit("::").next().unwrap_or_default();
        if name.len() > 1
            && name != "ZERO"
            && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        {
            self.replace(node, &format!("{text} - {text}"), format!("{text} -> 0"));
        }
    }

    fn call(&mut self, node: Node<'_>) {
        if let Some(function) = node.child_by_field_name("function") {
            if let Some(method) = function.child_by_field_name("field")
                && let Some(other) = match self.text(method) {
                    "min" => Some("max"),
                    "max" => Some("min"),
                    _ => None,
                }
            {
                let what = format!("{}: {} -> {other}", short(self.text(node)), self.text(method));
                self.replace(node, &with(self.text, node, method, other), what);
            }
            if !["identifier", "scoped_identifier"].contains(&function.kind()) {
                self.visit(function);
            }
        }
        self.field(node, "arguments");
    }

    fn statement(&mut self, node: Node<'_>) {
        let Some(expression) = node.named_child(0) else { return };
        let is_one_of_several = node.parent().is_some_and(|block| {
            let is_comment = |child: &Node<'_>| child.kind().ends_with("comment");
            block.named_children(&mut block.walk()).filter(|child| !is_comment(child)).count() > 1
        });
        // A statement alone in its block equals a whole function or branch, which other mutants cover.
        if is_one_of_several && is_action(expression) {
            self.delete(node);
        }
        self.visit(expression);
    }

    fn delete(&mut self, node: Node<'_>) {
        self.add(node, format!("if !{ON} {{ "), " }", format!("without {}", short(self.text(node))));
    }

    fn arm(&mut self, node: Node<'_>) {
        let guard = node.child_by_field_name("pattern").and_then(|it| it.child_by_field_name("condition"));
        let may_hold = guard.is_none_or(|guard| self.condition(guard, &[true, false]));
        if let Some(value) = node.child_by_field_name("value").filter(|_| may_hold) {
            if is_action(value) {
                let what = format!("without {}", short(self.text(value)));
                self.add(value, format!("{{ if !{ON} {{ "), " } }", what);
            }
            self.visit(value);
        }
    }

    /// Takes each field from the base instead.
    fn structure(&mut self, node: Node<'_>) {
        let Some(body) = node.child_by_field_name("body") else { return };
        let fields: Vec<_> = body.named_children(&mut body.walk()).collect();
        if let Some((base, fields)) = fields.split_last().filter(|it| it.0.kind() == "base_field_initializer")
        {
            for field in fields.iter().filter(|field| field.kind().ends_with("field_initializer")) {
                let name = node.child_by_field_name("name").map_or("", |name| self.text(name));
                let others = fields.iter().filter(|other| *other != field).chain([base]);
                let others: Vec<_> = others.map(|other| self.text(*other)).collect();
                let what = format!("{name} without {}", short(self.text(*field)));
                self.replace(node, &format!("{name} {{ {} }}", others.join(", ")), what);
            }
        }
        self.children(body);
    }
}

/// True if the expression has an effect, beside its value.
fn is_action(node: Node<'_>) -> bool {
    [
        "call_expression",
        "await_expression",
        "try_expression",
        "assignment_expression",
        "compound_assignment_expr",
        "return_expression",
        "break_expression",
        "continue_expression",
    ]
    .contains(&node.kind())
}

fn is_of_tests_or_models(attribute: &str) -> bool {
    // The attribute without its negated parts.
    let mut parts = attribute.split("not(");
    let asked = parts.next().into_iter().chain(parts.filter_map(|part| Some(part.split_once(')')?.1)));
    let asked: String = asked.collect();
    asked.contains("cfg(") && ["test", "latchwork_"].iter().any(|word| asked.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_only_code_is_recognized_by_its_attribute() {
        for attribute in ["#[cfg(test)]", "#[cfg(all(test, not(latchwork_loom)))]", "#[cfg(latchwork_loom)]"]
        {
            assert!(is_of_tests_or_models(attribute), "{attribute}");
        }
        for attribute in ["#[cfg(not(test))]", "#[cfg(all(unix, not(latchwork_loom)))]", "#[test]"] {
            assert!(!is_of_tests_or_models(attribute), "{attribute}");
        }
    }
}
