use super::*;

fn parse(text: &str) -> Result<Rules> {
    Rules::parse(text, &|name| (name == "www-data").then_some(33))
}

fn address(text: &str) -> Address {
    let parsed: std::net::SocketAddr = text.parse().expect("an address");
    parsed.into()
}

fn line_of(text: &str) -> String {
    parse(text).expect_err("it is wrong").to_string()
}

#[test]
fn without_rules_all_is_allowed() {
    let rules = parse("# nothing\n").expect("no rules");
    assert_eq!(rules, Rules::default());
    let verdict = rules.decide(Direction::Connect, 7, address("1.2.3.4:5"));
    assert_eq!(verdict, Verdict::Allow);
    assert!(!rules.admit_others(7));
}

#[test]
fn the_first_that_fits_decides() {
    let rules = parse(
        "[[rule]]\naction = \"deny\"\nports = [22, \"100-200\"]\n\
         [[rule]]\naction = \"direct\"\nuser = [\"www-data\", 1000]\naddress = [\"10.0.0.0/8\", \"::1\"]\n\
         [[rule]]\naction = \"kernel\"\ndirection = \"listen\"\n",
    )
    .expect("rules");
    let connect = |user, at: &str| rules.decide(Direction::Connect, user, address(at));
    assert_eq!(connect(33, "10.1.1.1:22"), Verdict::Deny);
    assert_eq!(connect(33, "10.1.1.1:150"), Verdict::Deny);
    assert_eq!(connect(33, "10.1.1.1:201"), Verdict::Direct);
    assert_eq!(connect(33, "[::ffff:10.1.1.1]:201"), Verdict::Direct);
    assert_eq!(connect(1000, "[::1]:80"), Verdict::Direct);
    assert_eq!(connect(1000, "[::2]:80"), Verdict::Allow);
    assert_eq!(connect(5, "10.1.1.1:201"), Verdict::Allow);
    let listen = rules.decide(Direction::Listen, 5, address("0.0.0.0:80"));
    assert_eq!(listen, Verdict::Kernel);
    assert!(rules.admit_others(0));
}

#[test]
fn a_network_of_no_bits_has_all_of_its_family() {
    let rules = parse("[[rule]]\naction = \"deny\"\naddress = \"0.0.0.0/0\"\n").expect("rules");
    let verdict = |at: &str| rules.decide(Direction::Listen, 1, address(at));
    assert_eq!(verdict("0.0.0.0:1"), Verdict::Deny);
    assert_eq!(verdict("255.1.1.1:1"), Verdict::Deny);
    assert_eq!(verdict("[::]:1"), Verdict::Allow);
    let rules = parse("[[rule]]\naction = \"deny\"\naddress = \"::/0\"\n").expect("rules");
    let verdict = rules.decide(Direction::Listen, 1, address("[ff::1]:1"));
    assert_eq!(verdict, Verdict::Deny);
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let cases = [
        ("\n\nrule = 5\n", "line 3: rules begin with [[rule]]"),
        (
            "[[rule]]\n",
            "line 1: a rule has an action: allow, deny, kernel or direct",
        ),
        (
            "[[rule]]\naction = \"no\"\n",
            "line 2: an action is allow, deny, kernel or direct",
        ),
        (
            "[[rule]]\naction = 5\n",
            "line 2: an action is allow, deny, kernel or direct",
        ),
        (
            "[[rule]]\ndirection = \"up\"\n",
            "line 2: a direction is listen or connect",
        ),
        (
            "[[rule]]\naction = \"deny\"\n\nuser = \"nobody\"\n",
            "line 4: there is no user `nobody`",
        ),
        (
            "[[rule]]\nuser = -1\n",
            "line 2: a user is a name or a number",
        ),
        (
            "[[rule]]\nuser = 4294967296\n",
            "line 2: a user is a name or a number",
        ),
        (
            "[[rule]]\nports = 65536\n",
            "line 2: a port is below 65536, or `FIRST-LAST`",
        ),
        (
            "[[rule]]\nports = \"9-8\"\n",
            "line 2: a port is below 65536, or `FIRST-LAST`",
        ),
        (
            "[[rule]]\nports = [\n1,\n\"x\"]\n",
            "line 4: a port is below 65536, or `FIRST-LAST`",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(line_of(text), message, "{text}");
    }
    for wrong in [
        "10.0.0.1/8",
        "10.0.0.0/33",
        "::/129",
        "10.0.0.0/+8",
        "x",
        "10.0.0.0/",
    ] {
        let text = format!("[[rule]]\naddress = \"{wrong}\"\n");
        assert!(
            line_of(&text).starts_with("line 2: an address is"),
            "{wrong}"
        );
    }
    assert!(line_of("[[rule]]\nprot = 5\n").starts_with("line 2: `prot` means nothing here"));
    assert!(line_of("a = 1\n\nb = \n").starts_with("line 3: "));
    assert!(line_of("[[rule]]\naction = \"deny\"\naction = \"deny\"\n").starts_with("line 3: "));
}

#[test]
fn others_are_admitted_by_rules_that_let_them_do_something() {
    let admits = |text: &str| parse(text).expect("rules").admit_others(33);
    assert!(!admits("[[rule]]\naction = \"direct\"\nuser = 33\n"));
    assert!(admits("[[rule]]\naction = \"direct\"\nuser = [33, 34]\n"));
    assert!(!admits("[[rule]]\naction = \"deny\"\nuser = 34\n"));
    assert!(admits("[[rule]]\naction = \"allow\"\nuser = 34\n"));
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(
        key in "action|direction|user|address|ports|x",
        value in "\"[a-z0-9./:-]{0,12}\"|-?[0-9]{1,22}|\\[[0-9, ]{0,8}\\]|[^\n]{0,12}",
        rest in ".{0,40}",
    ) {
        let text = format!("[[rule]]\naction = \"deny\"\n[[rule]]\n{key} = {value}\n{rest}");
        if let Err(error) = parse(&text) {
            proptest::prop_assert!(error.to_string().starts_with("line "), "{}", error);
        }
    }
}
